#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>

#include "tessera/cli/command.h"
#include "tessera/cli/help.h"
#include "tessera/cli/interrupt.h"
#include "tessera/cli/path_options.h"
#include "tessera/tessera.h"

namespace tessera::cli {
namespace {

std::string command_names() {
  std::vector<std::string> names;
  for (const CommandEntry& entry : commands()) names.emplace_back(entry.name);
  return joined(names);
}

int parsed(CLI::App& app, int argc, char** argv, Console& console) {
  try {
    app.parse(argc, argv);
    return kGood;
  } catch (const CLI::Success& help) {
    app.exit(help);
    return -1;
  } catch (const CLI::ParseError& error) {
    console.json = std::any_of(argv, argv + argc, [](std::string_view word) { return word == "--json"; });
    std::string command;
    for (const CLI::App* chosen : app.get_subcommands()) command = " " + chosen->get_name();
    std::string message = error.what();
    if (command.empty() && argc > 1 && argv[1][0] != '-')
      message = "there is no command '" + std::string(argv[1]) + "'; the commands are: " + command_names();
    return console.report(kMistake, message + "; see tessera" + command + " --help");
  }
}

int run(Command& command, const CLI::App& app, Console& console) {
  try {
    require_paths_apart(app);
    return command.run(console);
  } catch (const Error& error) {
    return console.report(static_cast<int>(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return console.report(kFailed, "[memory] out of memory; give smaller --shapes, or a model that needs less");
  } catch (const std::exception& error) {
    return console.report(kFailed, std::string("[internal] ") + error.what());
  }
}

// The output must have arrived: a full disk shows only when the last bytes leave.
int delivered(int code) {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
  std::fprintf(stderr, "tessera: standard output cannot be written: %s\n", std::strerror(errno));
  return kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  end_cleanly_when_interrupted();
  std::signal(SIGXFSZ, SIG_IGN);  // a write past the limit then returns an error
  CLI::App app("Runs an ONNX model on a mesh of devices.", "tessera");
  print_grouped_help(app);
  under(app, Heading::output);
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", "tessera " + std::string(version()), "print the version");
  app.require_subcommand(1);
  Console console;
  fail_when_files_shrink([&console](const std::string& message) { console.report(kFailed, message); });
  std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>> all;
  for (const CommandEntry& entry : commands()) {
    CLI::App* sub = app.add_subcommand(std::string(entry.name), std::string(entry.description));
    all.emplace_back(sub, entry.make());
    all.back().second->declare(*sub);
    std::vector<CLI::App*> takers = sub->get_subcommands([](CLI::App*) { return true; });
    takers.push_back(sub);
    for (CLI::App* taker : takers) {
      under(*taker, Heading::output);
      taker->set_help_flag("-h,--help", "print this help");
      taker->add_flag("--json", console.json, "print one JSON object on standard output, and nothing else there");
      taker->add_flag("--quiet", console.quiet, "print only the answer and errors");
    }
    use_first(*sub, entry.first);
  }
  if (int code = parsed(app, argc, argv, console); code != kGood) return delivered(std::max(code, kGood));
  for (auto& [sub, command] : all)
    if (sub->parsed()) return delivered(run(*command, *sub, console));
  return kMistake;
}

}  // namespace tessera::cli

int main(int argc, char** argv) {
  return tessera::cli::main(argc, argv);
}

#include <algorithm>
#include <cstdio>
#include <new>

#include "tessera/cli/command.h"
#include "tessera/tessera.h"

namespace tessera::cli {
namespace {

// Reports on standard error and, with --json, as the one object on standard output.
int report(Console& console, int code, const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "tessera: %s\n", message.c_str());
  if (console.json) console.emit({{"error", message}});
  return code;
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
    return report(console, kMistake, std::string(error.what()) + "; see tessera" + command + " --help");
  }
}

int run(Command& command, Console& console) {
  try {
    return command.run(console);
  } catch (const Error& error) {
    return report(console, static_cast<int>(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return report(console, kFailed, "out of memory");
  } catch (const std::exception& error) {
    return report(console, kFailed, std::string("[internal] ") + error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs an ONNX model on a mesh of devices.", "tessera");
  app.set_version_flag("--version", "tessera " + std::string(version()));
  app.require_subcommand(1);
  Console console;
  std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>> all;
  for (const CommandEntry& entry : commands()) {
    CLI::App* sub = app.add_subcommand(std::string(entry.name), std::string(entry.description));
    all.emplace_back(sub, entry.make());
    all.back().second->declare(*sub);
    sub->add_flag("--json", console.json, "print one JSON object on standard output and nothing else there");
    sub->add_flag("--quiet", console.quiet, "print nothing but errors and what was asked for");
  }
  if (int code = parsed(app, argc, argv, console); code != kGood) return std::max(code, kGood);
  for (auto& [sub, command] : all)
    if (sub->parsed()) return run(*command, console);
  return kMistake;
}

}  // namespace tessera::cli

int main(int argc, char** argv) {
  return tessera::cli::main(argc, argv);
}

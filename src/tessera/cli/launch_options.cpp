#include "tessera/cli/launch_options.h"

#include <algorithm>
#include <fstream>

#include "tessera/inspect.h"

namespace tessera::cli {
namespace {

/// This process' arguments, the program's name first.
std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace

void LaunchOptions::declare(CLI::App& app) {
  app.add_option("--timeout", timeout, "longest wait of one rank for another, in seconds")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  app.add_option("--spawn", spawn, "start so many processes, one for each rank of the mesh; else ranks are threads")
      ->check(CLI::Range(1, 256));
}

std::optional<int> LaunchOptions::begin(Console& console, int threads) const {
  const std::optional<Launch> launch = Launch::find();
  if (!launch && spawn == 0) return std::nullopt;
  if (!launch) {
    SpawnOptions options;
    options.ranks = spawn;
    options.arguments = command_line();
    return tessera::spawn(options);
  }
  const int cores = machine().cores, each = threads > 0 ? threads : std::max(1, cores / launch->local_size);
  console.connection = Connection::make(*launch, {.timeout = waits(), .spin = each * launch->local_size <= cores});
  return std::nullopt;
}

std::chrono::milliseconds LaunchOptions::waits() const {
  return std::chrono::milliseconds(static_cast<int64_t>(timeout * 1e3 + 0.5));
}

}  // namespace tessera::cli

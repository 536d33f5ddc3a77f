#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "tessera/cli/console.h"
#include "tessera/tessera.h"

/// How a command was given, in traces, so that `tessera whatif` can compile the same model in another way.
namespace tessera::cli {

/// The options that were given to `app`, of a command that ran at these sizes, and where it ran.
Json recorded_command(const CLI::App& app, const SymbolSizes& sizes);

/// What recorded_command() wrote, read back.
struct RecordedCommand {
  std::string name;  ///< "bench", "train"; empty: the trace does not say it
  std::string folder;
  SymbolSizes sizes;
  std::map<std::string, std::vector<std::string>> options;  ///< by name, "--mesh"
  std::map<std::string, std::vector<int64_t>> label_dims;   ///< of a training step
  uint64_t model_bytes = 0;                                 ///< of the model's file; 0: the trace does not say it

  /// Throws a user error that names `trace` if the text is damaged.
  static RecordedCommand read(const std::string& text, const std::string& trace);
  /// Throws a user error that names `trace` if the model's file, below the current folder, has another size by now.
  void require_same_model(const std::string& trace) const;
  /// The value of an option; "" if it was not given.
  std::string value(const std::string& option) const;
  /// Gives these options to another command, as far as it has them.
  void give(CLI::App& app) const;
};

/// Sets an option of `app` in place of what it has.
void set_option(CLI::App& app, const std::string& name, const std::vector<std::string>& values);

}  // namespace tessera::cli

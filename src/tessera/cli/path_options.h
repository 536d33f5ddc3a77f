#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

/// Options that name files and folders. They are compared before any is opened, since a command whose output is its
/// input, or another of its outputs, would destroy it.
namespace tessera::cli {

/// What a command does with a path.
enum class PathUse {
  reads,     ///< a file, or a folder with all in it
  writes,    ///< a file, which takes an older one's place
  replaces,  ///< a folder, which takes an older one's place with all in it
  adds,      ///< a folder, to which files are added
};

/// One option of a command.
struct PathOption {
  const char* name;  ///< "--metrics"
  PathUse use;
  /// The paths that a value names; null: the value is one.
  std::function<std::vector<std::string>(const std::string& value)> paths_in = nullptr;
};

/// Says which options of `app`, already declared, name paths; --help then shows INPUT, OUTPUT or FOLDER behind these.
void declare_paths(CLI::App& app, const std::vector<PathOption>& options);

/// Throws a user error that names two options of those that were given to `app` if what one writes would destroy what
/// the other reads or writes: their paths lead, by links or not, to one file or folder, or one lies in the other.
void require_paths_apart(const CLI::App& app);

}  // namespace tessera::cli

#pragma once

#include <sys/types.h>

#include <filesystem>
#include <ios>
#include <string>
#include <vector>

#include "io/temporary_folder.h"

namespace tessera::test {

/// A file of /proc; "" if its process has ended meanwhile.
inline std::string contents_in_proc(const std::filesystem::path& path) {
  try {
    return testing_io::contents(path);
  } catch (const std::ios_base::failure&) {
    return "";
  }
}

/// Processes whose command line holds `word`, by /proc.
inline std::vector<pid_t> processes_with(const std::string& word) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (contents_in_proc(entry.path() / "cmdline").find(word) == std::string::npos) continue;
    const std::string status = contents_in_proc(entry.path() / "status");
    if (!status.empty() && status.find("State:\tZ") == std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

}  // namespace tessera::test

#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "io/temporary_folder.h"

namespace tessera::test {

/// Processes whose command line holds `word`, by /proc.
inline std::vector<pid_t> processes_with(const std::string& word) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (testing_io::contents(entry.path() / "cmdline").find(word) == std::string::npos) continue;
    const std::string status = testing_io::contents(entry.path() / "status");
    if (status.find("State:\tZ") == std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

}  // namespace tessera::test

#pragma once

#include <unistd.h>

#include <string>
#include <vector>

#include "io/temporary_folder.h"

namespace tessera::test {

/// Starts a program by its path, in `folder`, with these words as its arguments (its name first); the process.
inline pid_t start(const testing_io::TemporaryFolder& folder, const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (chdir(folder.path().c_str()) != 0) _exit(127);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  return child;
}

}  // namespace tessera::test

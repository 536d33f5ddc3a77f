#pragma once

#include <unistd.h>

#include <string>
#include <vector>

namespace tessera::test {

/// Starts a program by its path, with these words as its arguments (its name first); the process.
inline pid_t start(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  return child;
}

}  // namespace tessera::test

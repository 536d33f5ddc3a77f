#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "io/temporary_folder.h"

/// Commands, as a person's shell runs them.
namespace tessera::test {

struct Ran {
  int code = -1;  ///< -1: ended by a signal
  std::string out, err;
};

/// Runs `command` in a shell, in `folder`, where its output goes to files.
inline Ran run_command(const std::string& command, const testing_io::TemporaryFolder& folder) {
  const std::string out = (folder / "stdout").string(), err = (folder / "stderr").string();
  const int status =
      std::system(("cd " + folder.path().string() + " && " + command + " >" + out + " 2>" + err).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, testing_io::contents(out), testing_io::contents(err)};
}

}  // namespace tessera::test

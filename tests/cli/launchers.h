#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <ostream>
#include <string>

#include "run_command.h"

/// The launcher of a command's ranks.
namespace tessera::test {

struct Launcher {
  std::string engine;
  /// The shell command that starts so many ranks of a command. Its code is that of a rank that failed, if one did.
  std::string (*start)(int ranks, const std::string& command);
  /// How long the launcher may sleep after its ranks have ended.
  std::chrono::seconds nap{0};

  friend std::ostream& operator<<(std::ostream& stream, const Launcher& launcher) { return stream << launcher.engine; }
};

inline std::string by_spawn(int ranks, const std::string& command) {
  return command + " --spawn " + std::to_string(ranks);
}

/// Open MPI leaks, from parts of its own that it has unloaded by then.
inline std::string by_mpirun(int ranks, const std::string& command) {
  return "LSAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe "
         "-n " +
         std::to_string(ranks) + " " + command;
}

/// A process for each rank with the variables that torchrun sets. The code is the largest.
inline std::string by_torchrun(int ranks, const std::string& command) {
  static int launches = 0;  // ports are not at once free again
  const std::string size = std::to_string(ranks);
  const std::string port = std::to_string(20000 + (getpid() * 16 + launches++ % 16) % 10000);
  return "sh -c 'pids=; for rank in $(seq 0 " + std::to_string(ranks - 1) + "); do RANK=$rank LOCAL_RANK=$rank" +
         " WORLD_SIZE=" + size + " LOCAL_WORLD_SIZE=" + size + " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port + " " +
         command + " & pids=\"$pids $!\"; done; " +
         "code=0; for pid in $pids; do wait $pid; c=$?; [ $c -gt $code ] && code=$c; done; exit $code'";
}

inline const Launcher kSpawn{"processes", by_spawn}, kTorchrun{"gloo", by_torchrun};
/// mpirun sleeps for a second, asks its ranks to end, and sleeps for another, from which only a rank that ends during
/// it wakes it.
inline const Launcher kMpirun{"mpi", by_mpirun, std::chrono::seconds{1}};

inline std::string engine_of(const testing::TestParamInfo<Launcher>& info) {
  return info.param.engine;
}

/// Why the binary cannot use an engine here; "": it can.
inline std::string missing(const std::string& engine, const testing_io::TemporaryFolder& folder) {
#ifdef TESSERA_THREAD_SANITIZER
  return engine == "processes" ? "the sanitizer keeps for itself the addresses where ranks share memory"
                               : "the sanitizer does not know what the library's threads do";
#endif
  const Ran info = run_command(std::string(TESSERA_BINARY) + " info --json", folder);
  const size_t named = info.out.find("\"name\": \"" + engine + "\"");
  if (named == std::string::npos) return "tessera info does not know " + engine;
  const size_t usable = info.out.find("\"usable\": ", named);
  return info.out.compare(usable, 14, "\"usable\": true") == 0 ? "" : "no " + engine + " here";
}

}  // namespace tessera::test

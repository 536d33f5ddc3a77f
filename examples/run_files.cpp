// Runs a model on arrays of a file, and writes what it computes to another:
//   run_files MODEL MESH INPUTS.npz OUTPUTS.npz [MEMORY]
// MEMORY, such as 2G, is the most that the ranks may hold together; by default it is half of the machine's. If a signal
// ends the program while it writes, no unfinished file stays behind.
// An array of the file may also replace an input's default: an initializer that the model lists among its inputs.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

#include "tessera/default_inputs.h"
#include "tessera/error.h"
#include "tessera/files.h"
#include "tessera/memory.h"
#include "tessera/tensors.h"
#include "tessera/tessera.h"

namespace {

// Before any other thread starts: none of them gets the signal, and the one that waits for it may remove files.
void leave_no_litter_when_interrupted() {
  sigset_t awaited;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGINT);
  sigaddset(&awaited, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &awaited, nullptr);
  std::thread([awaited] {
    int signal = 0;
    sigwait(&awaited, &signal);
    tessera::remove_unfinished();
    std::_Exit(128 + signal);
  }).detach();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5 && argc != 6) {
    std::fprintf(stderr, "usage: run_files MODEL MESH INPUTS.npz OUTPUTS.npz [MEMORY]\n");
    return 2;
  }
  leave_no_litter_when_interrupted();
  tessera::SessionOptions options;
  options.memory_limit = tessera::machine_memory() / 2;
  if (argc == 6) {
    const std::optional<size_t> limit = tessera::parse_bytes(argv[5]);
    if (!limit) {
      std::fprintf(stderr, "'%s' is not a size of memory; write bytes, or 512M, or 4G\n", argv[5]);
      return 2;
    }
    options.memory_limit = *limit;
  }
  const tessera::Model model = tessera::fed_by(tessera::Model::load(argv[1]), argv[3]);
  const tessera::Tensors inputs = tessera::read_tensors(argv[3], "input", model.inputs());
  tessera::require_writable(argv[4]);
  tessera::Session session(model, tessera::Mesh::parse(argv[2]), {}, {}, options);
  tessera::write_tensors(argv[4], session.run(inputs));
  std::printf("needed %s\n", tessera::bytes_text(static_cast<double>(session.process_bytes())).c_str());
  return 0;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}

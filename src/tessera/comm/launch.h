#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::comm {

/// The engine that carries the communication of a run.
enum class Engine {
  automatic,  ///< MPI or Gloo under a launcher that started several processes, otherwise threads
  threads,    ///< ranks are threads of this process
  processes,  ///< ranks are processes that this one starts, with shared memory
  mpi,        ///< each process is an MPI rank
  gloo,       ///< each process is a rank; they meet at MASTER_ADDR:MASTER_PORT
};
std::string_view name_of(Engine engine);
/// Throws a user error that lists the engines.
Engine engine_named(std::string_view name);

/// What a launcher has told this process about its run.
struct Launched {
  Engine engine = Engine::threads;  ///< never automatic
  std::string launcher;             ///< "Open MPI", "PMIx", "Slurm", "torchrun"; empty: none
  int rank = 0;
  int size = 0;         ///< processes of the run; 0: not known before MPI has started
  int local_rank = -1;  ///< among the processes of this machine; -1: unknown
  int local_size = 0;   ///< 0: unknown
  std::string address;  ///< for Gloo: where rank 0 serves the rendezvous
  int port = 0;

  /// Whether each process is one rank, so that the world, not the mesh, says how many there are.
  bool distributed() const { return engine == Engine::mpi || engine == Engine::gloo; }
};

/// A variable of the environment; nothing if it is not set.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;
Variables process_environment();

/// A TCP port, 1 to 65535. Throws a user error that calls the text `name`.
int parse_port(std::string_view text, std::string_view name);

/// Finds the launcher by the variables that it sets: Open MPI's OMPI_COMM_WORLD_RANK and _SIZE, PMIX_RANK and
/// PMIX_NAMESPACE, torchrun's RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and SLURM_STEP_ID and SLURM_PROCID of a
/// step of srun. If launchers start each other, the innermost counts: torchrun itself (which sets
/// TORCHELASTIC_RUN_ID), then MPI, then Slurm. Throws a user error for variables that are incomplete or no numbers, for
/// RANK and WORLD_SIZE set by hand that contradict MPI's or Slurm's, and for an engine that needs more variables.
Launched find_launch(Engine asked, const Variables& variables);

}  // namespace tessera::comm

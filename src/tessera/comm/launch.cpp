#include "tessera/comm/launch.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "tessera/base/error.h"

namespace tessera::comm {
namespace {

struct EngineRow {
  Engine engine;
  std::string_view name;
};
constexpr std::array kEngines = {EngineRow{Engine::automatic, "auto"}, EngineRow{Engine::threads, "threads"},
                                 EngineRow{Engine::processes, "processes"}, EngineRow{Engine::mpi, "mpi"},
                                 EngineRow{Engine::gloo, "gloo"}};

/// A number that is not negative.
template <typename T>
std::optional<T> parse(std::string_view text) {
  T result = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
  if (error != std::errc() || end != text.data() + text.size() || result < 0) return std::nullopt;
  return result;
}

/// Reads the variables of one launcher, whose name appears in errors.
class Reader {
 public:
  Reader(const Variables& variables, std::string launcher) : variables_(variables), launcher_(std::move(launcher)) {}

  bool has(const std::string& name) const { return variables_(name).has_value(); }
  std::string text(const std::string& name) const { return variables_(name).value_or(""); }
  /// `because`: the variable that is set although this one is not.
  std::string needed(const std::string& name, const std::string& because) const {
    auto value = variables_(name);
    if (!value || value->empty())
      fail("launch", "{} is set, as {} sets it, but {} is not; set both, or neither, or give `engine=threads`", because,
           launcher_, name);
    return *value;
  }
  int number(const std::string& name, const std::string& because) const {
    const std::string value = needed(name, because);
    const auto result = parse<int>(value);
    if (!result) fail("launch", "{}={} is not a number; {} sets it to one", name, value, launcher_);
    return *result;
  }
  int number_or(const std::string& name, int otherwise) const { return has(name) ? number(name, name) : otherwise; }
  int port(const std::string& name, const std::string& because) const {
    const std::string value = needed(name, because);
    return parse_port(value, name);
  }

  Launched launch(Engine engine, const std::string& rank, const std::string& size) const {
    Launched result;
    result.engine = engine;
    result.launcher = launcher_;
    result.rank = number(rank, has(rank) ? rank : size);
    result.size = number(size, rank);
    if (result.rank >= result.size)
      fail("launch", "{}={} and {}={}: ranks count from 0 to one less than the size", rank, result.rank, size,
           result.size);
    return result;
  }

 private:
  const Variables& variables_;
  std::string launcher_;
};

std::optional<Launched> from_open_mpi(const Variables& variables) {
  const Reader reader(variables, "Open MPI");
  const std::string rank = "OMPI_COMM_WORLD_RANK", size = "OMPI_COMM_WORLD_SIZE";
  if (!reader.has(rank) && !reader.has(size)) return std::nullopt;
  Launched launch = reader.launch(Engine::mpi, rank, size);
  launch.local_rank = reader.number_or("OMPI_COMM_WORLD_LOCAL_RANK", -1);
  launch.local_size = reader.number_or("OMPI_COMM_WORLD_LOCAL_SIZE", 0);
  return launch;
}

std::optional<Launched> from_torchrun(const Variables& variables) {
  const Reader reader(variables, "torchrun");
  if (!reader.has("RANK") && !reader.has("WORLD_SIZE")) return std::nullopt;
  Launched launch = reader.launch(Engine::gloo, "RANK", "WORLD_SIZE");
  launch.local_rank = reader.number_or("LOCAL_RANK", -1);
  launch.local_size = reader.number_or("LOCAL_WORLD_SIZE", 0);
  launch.address = reader.needed("MASTER_ADDR", "RANK");
  launch.port = reader.port("MASTER_PORT", "RANK");
  // torchrun's agent may serve a store of its own at MASTER_PORT; the rendezvous then uses the next port.
  if (reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True")
    launch.port = parse_port(std::to_string(launch.port + 1), "torchrun's agent serves MASTER_PORT, and the next port");
  return launch;
}

/// The tasks of one node in "2(x3),1", which is Slurm's count for four nodes with 2 2 2 1 tasks; 0: unknown.
int tasks_on(int node, std::string_view counts) {
  while (!counts.empty()) {
    const std::string_view item = counts.substr(0, counts.find(','));
    counts.remove_prefix(std::min(item.size() + 1, counts.size()));
    int tasks = 0, times = 1;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), tasks);
    if (error != std::errc()) return 0;
    if (const size_t at = item.find("(x"); at != std::string_view::npos)
      std::from_chars(item.data() + at + 2, item.data() + item.size(), times);
    if (node < times) return tasks;
    node -= times;
  }
  return 0;
}

/// Whether this is a process of an srun step. A batch script has SLURM_PROCID, too, but srun did not start it; nor did
/// it start the shell of an interactive allocation, a step whose number is one of the last that 32 bits hold.
std::optional<Launched> from_slurm(const Variables& variables) {
  constexpr int64_t kFirstReservedStep = 0xfffffff0;
  const Reader reader(variables, "srun");
  if (!reader.has("SLURM_STEP_ID") && (!reader.has("SLURM_PROCID") || reader.has("SLURM_JOB_ID"))) return std::nullopt;
  const auto step = parse<int64_t>(reader.needed("SLURM_STEP_ID", "SLURM_PROCID"));
  if (!step) fail("launch", "SLURM_STEP_ID={} is not a number; srun sets it to one", reader.text("SLURM_STEP_ID"));
  if (*step >= kFirstReservedStep) return std::nullopt;
  reader.needed("SLURM_PROCID", "SLURM_STEP_ID");
  Launched launch = reader.launch(Engine::gloo, "SLURM_PROCID",
                                  reader.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
  launch.local_rank = reader.number_or("SLURM_LOCALID", -1);
  launch.local_size = tasks_on(reader.number_or("SLURM_NODEID", 0), reader.text("SLURM_STEP_TASKS_PER_NODE"));
  launch.address = reader.text("MASTER_ADDR");
  const std::string nodes = reader.text("SLURM_STEP_NODELIST");
  if (launch.address.empty() && !nodes.empty() && nodes.find_first_of(",[") == std::string::npos)
    launch.address = "127.0.0.1";
  // Steps of one machine should not meet each other.
  const int job = reader.number_or("SLURM_JOB_ID", 0);
  launch.port = reader.has("MASTER_PORT") ? reader.port("MASTER_PORT", "MASTER_PORT")
                                          : 20000 + static_cast<int>((int64_t{job} * 64 + *step % 64) % 10000);
  launch.launcher = "Slurm";
  return launch;
}

std::optional<Launched> from_pmix(const Variables& variables, const std::optional<Launched>& slurm) {
  const Reader reader(variables, "PMIx");
  if (!reader.has("PMIX_RANK") && !reader.has("PMIX_NAMESPACE")) return std::nullopt;
  reader.needed("PMIX_NAMESPACE", "PMIX_RANK");
  Launched launch = slurm.value_or(Launched{});
  launch.engine = Engine::mpi;
  launch.launcher = "PMIx";
  launch.rank = reader.number("PMIX_RANK", "PMIX_NAMESPACE");
  return launch;
}

/// A launch that Gloo can use: torchrun's, or another one whose user has said where ranks meet.
Launched gloo_launch(const std::optional<Launched>& mpi, const std::optional<Launched>& torchrun,
                     const std::optional<Launched>& slurm, const Variables& variables) {
  if (torchrun) return *torchrun;
  std::optional<Launched> launch = slurm ? slurm : mpi;
  if (!launch)
    fail("launch",
         "`engine=gloo`, but nothing says which rank this process is; start it with torchrun, or set RANK, WORLD_SIZE, "
         "MASTER_ADDR and MASTER_PORT for each process");
  const Reader reader(variables, launch->launcher);
  if (launch->address.empty()) launch->address = reader.text("MASTER_ADDR");
  if (launch->address.empty() || (launch->port == 0 && !reader.has("MASTER_PORT")))
    fail("launch",
         "Gloo's ranks meet at rank 0's machine, which {} does not name; set MASTER_ADDR and MASTER_PORT for all "
         "processes (under Slurm: MASTER_ADDR=$(scontrol show hostnames | head -n 1))",
         launch->launcher);
  launch->engine = Engine::gloo;
  if (reader.has("MASTER_PORT")) launch->port = reader.port("MASTER_PORT", "MASTER_PORT");
  return *launch;
}

/// `engines`: the options with which the user chooses an engine.
void require_agreement(const Launched& torchrun, const Launched& other, std::string_view engines) {
  if (other.size == 0 || (other.rank == torchrun.rank && other.size == torchrun.size)) return;
  fail("launch", "{} says that this is rank {} of {}, but RANK and WORLD_SIZE say {} of {}; unset these, or give {}",
       other.launcher, other.rank, other.size, torchrun.rank, torchrun.size, engines);
}

}  // namespace

int parse_port(std::string_view text, std::string_view name) {
  constexpr int kMostPort = 65535;
  const auto port = parse<int>(text);
  if (!port || *port < 1 || *port > kMostPort)
    fail("launch", "{}={} is not a port; give one from 1 to {}", name, text, kMostPort);
  return *port;
}

std::string_view name_of(Engine engine) {
  for (const EngineRow& row : kEngines)
    if (row.engine == engine) return row.name;
  return "auto";
}

Engine engine_named(std::string_view name) {
  for (const EngineRow& row : kEngines)
    if (row.name == name) return row.engine;
  fail("launch", "there is no engine '{}'; the engines are auto, threads, processes, mpi and gloo", name);
}

Variables process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
}

Launched find_launch(Engine asked, const Variables& variables) {
  Launched launch;
  launch.engine = asked;
  if (asked == Engine::threads || asked == Engine::processes) return launch;
  const auto slurm = from_slurm(variables), torchrun = from_torchrun(variables);
  auto mpi = from_open_mpi(variables);
  if (!mpi) mpi = from_pmix(variables, slurm);
  if (asked == Engine::gloo) return gloo_launch(mpi, torchrun, slurm, variables);
  if (asked == Engine::mpi) {
    if (mpi) return *mpi;
    fail("launch", "`engine=mpi`, but this process was not started by MPI; start it with mpirun -n RANKS tessera …");
  }
  // Other launchers start torchrun, but torchrun starts none.
  if (torchrun && variables("TORCHELASTIC_RUN_ID")) return *torchrun;
  const bool step_of_many = slurm && slurm->size > 1;
  if (torchrun && mpi) require_agreement(*torchrun, *mpi, "`engine=mpi` or `engine=gloo`");
  if (torchrun && !mpi && step_of_many) require_agreement(*torchrun, *slurm, "`engine=gloo` to follow them");
  if (mpi) return *mpi;
  if (torchrun) return *torchrun;
  if (step_of_many) return gloo_launch(mpi, torchrun, slurm, variables);
  launch.engine = Engine::threads;
  return launch;
}

}  // namespace tessera::comm

#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "tessera/checkpoint/checkpoint.h"
#include "tessera/checkpoint/save.h"
#include "tessera/runtime/classes.h"
#include "tessera/runtime/rank_plan.h"

namespace tessera::runtime {

struct ExecutorOptions {
  int threads_per_rank = 0;        ///< 0: the machine's cores divided by its ranks, at least 1
  bool profile = false;            ///< note when each step of a run begins and ends
  bool keep_all = false;           ///< keep every intermediate value readable after a run (for comparisons)
  bool overlap = true;             ///< compute while communications are under way (bind/schedule.h)
  int prefetch = bind::kUnderWay;  ///< so many of them at most
  size_t memory_limit = 0;         ///< bytes that this process may hold for its ranks; 0: what the machine has
  size_t kept_plans = 64;    ///< for so many sets of sizes; the one that was not used for the longest time makes room
  bool saves = false;        ///< states are saved while it runs: what is planned has room for their copies
  comm::WorldOptions world;  ///< unless `connected`
  /// The world whose local ranks this executor is to be; every process of it has an executor of the same program, and
  /// makes the same calls in the same order. Null: all ranks are threads of this process.
  std::shared_ptr<comm::World> connected;
  std::string device = "cpu";  ///< of each rank, by its name (device/device.h)
  int local_rank = 0;          ///< the number of this process' first rank among those of its machine
  int machine_ranks = 0;       ///< ranks among which this machine's cores are divided; 0: all
  /// Called once where ranks are connected, by each rank of this process: when the first plan is made, for which the
  /// weights were read, and nothing has run. What it throws, all throw.
  std::function<void(comm::Communicator& everyone)> loaded;
  /// Called once if a rank has failed and another of this process does not end within the grace: a thread that hangs
  /// cannot be ended, and run() does not return. For who would rather end the process.
  std::function<void(const std::string& message, const std::vector<comm::FlightLog>& flights)> abandoned;
  std::chrono::milliseconds grace{5'000};
  /// Whose states the program's are, where another executor has them, too; null: the executor has its own.
  std::shared_ptr<StateStore> states;
  ProgramsForSizes for_sizes;  ///< null: the programs run at the sizes of their own class only (classes.h)
};

/// The threads of each rank's team.
int threads_of_rank(const RankPrograms& programs, const ExecutorOptions& options);

/// Ranks that a process runs as threads, at most.
inline constexpr size_t kMostRanksHere = 256;

/// Runs a program on ranks that are threads of this process, and maybe of others. run() may be called from several
/// threads where all ranks are here; calls queue.
class Executor {
 public:
  Executor(std::shared_ptr<const spmd::Program> program, const ExecutorOptions& options);
  /// The same for ranks that run programs of their own.
  Executor(std::shared_ptr<const RankPrograms> programs, const ExecutorOptions& options);
  ~Executor();

  using Tensors = std::map<std::string, Tensor>;

  /// Whole inputs by name; whole outputs by name, in the process of rank 0: others get none. States that step have
  /// their next values afterwards. Throws a user error for inputs that are missing, unknown, or of the wrong dtype or
  /// shape. A rank that fails ends the run on all; its error is thrown, and where ranks are connected, there will be no
  /// other run. No state has stepped then; if a rank had begun to write over one, all must be set before the next run.
  /// The memory of outputs that `given` has is theirs. Throws a user error if one has another dtype or shape, and a
  /// running error if the limits end the run, as if a rank had failed.
  Tensors run(const Tensors& inputs, const RunLimits& limits = {}, Tensors given = {});

  /// The states that change, whole, by name, in the process of rank 0: others get none.
  Tensors states() {
    return states_if([](const std::string&) { return true; });
  }
  /// The same of these states only. Throws a user error for a name that no such state has.
  Tensors states(const std::vector<std::string>& names);
  /// Gives states that change these whole values, the same in all processes. Throws a user error for a name that no
  /// such state has, another dtype or another shape; then none has changed.
  void set_states(const Tensors& states);
  const std::shared_ptr<StateStore>& store() const;

  /// Which states change, as a checkpoint names their model; and whether all ranks are in this process.
  std::string model_of_states() const;
  bool is_together() const;
  /// A checkpoint of copies of the states. Any thread may call its members while the executor runs on; they return what
  /// went wrong, "" if nothing did.
  struct Saving {
    std::function<std::string()> write;  ///< the files of this process' ranks; frees the copies
    /// Once all processes have written; does nothing but in that of rank 0.
    std::function<checkpoint::Outcome()> commit;
    std::function<void()> discard;  ///< instead, if one could not write; likewise
  };
  /// Copies the states that change, to save them in a folder of checkpoints, each element by the lowest rank that holds
  /// it. All processes call it.
  Saving save_states(const std::filesystem::path& folder, const checkpoint::Facts& facts, int64_t keep);
  /// What processes have to say of one thing that each does by itself: nullopt while any is not done, else the first
  /// one's problem, or "". All processes call it, with nullopt if they are not done.
  std::optional<std::string> common_problem(const std::optional<std::string>& own);
  /// Gives the states that change what a checkpoint holds, of any mesh. Throws a user error if it is another model's.
  void load_states(const checkpoint::Checkpoint& checkpoint);

  /// The values of the program's symbols that these inputs imply. Throws a user error naming input, dimension and mend,
  /// also where no program runs at these sizes.
  Symbols bind_symbols(const Tensors& inputs) const;

  /// Bytes of each rank, states and arena, for those symbol values. Prepares the plans (and so loads the states).
  std::vector<size_t> peak_bytes(const Symbols& symbols);
  /// Bytes that this process needs for all of its ranks, which is what its limit counts, at the peak of the runs so far
  /// and of those that peak_bytes() was asked for: weights that ranks share once, and those that are views of the
  /// model's data not at all; outputs.
  size_t process_bytes() const;

  struct Kept {
    std::string name;
    Tensor value;
  };
  /// With keep_all: every value of the last run that is not partial, in running order, by its global name; whole in the
  /// process of rank 0.
  std::vector<Kept> kept();

  /// With profile: the times of the last run, per rank of this process; empty if it failed, or there was none.
  std::vector<RankTimes> times() const;

  /// What ranks did last, of a run that failed: those of this process, and of others where ranks share memory.
  std::vector<comm::FlightLog> flights() const;

  const spmd::Program& program() const;  ///< of rank 0
  int threads_per_rank() const;

 private:
  Tensors states_if(const std::function<bool(const std::string& name)>& is_wanted);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::runtime

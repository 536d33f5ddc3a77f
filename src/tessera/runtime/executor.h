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
#include "tessera/runtime/process_share.h"
#include "tessera/runtime/rank_plan.h"
#include "tessera/runtime/rank_team.h"

namespace tessera::runtime {

struct ExecutorOptions {
  int threads_per_rank = 0;        ///< 0: the machine's cores divided by its ranks, at least 1
  bool profile = false;            ///< note when each step of a run begins and ends
  bool keep_all = false;           ///< keep every intermediate value readable after a run (for comparisons)
  bool overlap = true;             ///< compute while communications are under way (bind/schedule.h)
  int prefetch = bind::kUnderWay;  ///< so many of them at most
  bool spin = true;                ///< ranks with cores of their own spin before they yield, while they wait
  size_t memory_limit = 0;         ///< bytes that this process may hold for its ranks; 0: what the machine has
  /// For so many sets of sizes plans are kept, which take about so many bytes together (`connected`: any). Those that
  /// were not used for the longest time make room; the latest stays.
  size_t kept_plans = 64, kept_plan_bytes = size_t{1} << 28;
  bool saves = false;        ///< states are saved while it runs: what is planned has room for their copies
  comm::WorldOptions world;  ///< unless `connected`
  /// The world whose local ranks this executor is to be; every process of it has an executor of the same program, and
  /// makes the same calls in the same order. Null: all ranks are threads of this process.
  std::shared_ptr<comm::World> connected;
  std::string device = "cpu";  ///< of each rank, by its name (device/device.h)
  int local_rank = 0;          ///< the number of this process' first rank among those of its machine
  int machine_ranks = 0;       ///< ranks among which this machine's cores are divided; 0: all
  /// Called once by each rank of this process if ranks are connected, when the first plan is made: the weights have
  /// been read, and nothing has run. If it throws, all ranks throw its error.
  std::function<void(comm::Communicator& everyone)> loaded;
  /// Called once if a rank has failed and another rank of this process does not end within `grace`: a thread that hangs
  /// cannot be ended, and run() does not return. Lets the caller end the process.
  std::function<void(const std::string& message, const std::vector<comm::FlightLog>& flights)> abandoned;
  std::chrono::milliseconds grace{5'000};
  /// The most runs that go on at once, each on a team of ranks of its own, with an arena of its own. 1 where ranks are
  /// connected, where states change, and with `profile` or `keep_all`, which say something of the last run.
  int concurrent_runs = 1;
  /// What other executors of the process have, too, whose limit counts instead of `memory_limit`; null: nothing. Where
  /// ranks are connected, of executors in the same world.
  std::shared_ptr<ProcessShare> share;
  /// Whose states the program's are, where another executor has them, too; null: the executor has its own.
  std::shared_ptr<StateStore> states;
  ProgramsForSizes for_sizes;  ///< null: the programs run at the sizes of their own class only (classes.h)
};

/// The threads of each rank's team.
int threads_of_rank(const RankPrograms& programs, const ExecutorOptions& options);

/// Ranks that a process runs as threads, at most.
inline constexpr size_t kMostRanksHere = 256;

/// Runs a program on ranks that are threads of this process, and maybe of others. run() may be called from several
/// threads where all ranks are here; calls beyond ExecutorOptions::concurrent_runs queue.
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
  /// The error is a RankFailure.
  /// `given`: memory for outputs, by name; the results are written there. Throws a user error if one has another dtype
  /// or shape, and a running error if the limits end the run.
  Tensors run(const Tensors& inputs, const RunLimits& limits = {}, Tensors given = {});

  /// The states that change, whole, by name, in the process of rank 0: others get none.
  Tensors states() {
    return states_if([](const std::string&) { return true; });
  }
  /// The same for these states only. Throws a user error for an unknown name.
  Tensors states(const std::vector<std::string>& names);
  /// Gives states that change these whole values, the same in all processes. Throws a user error for an unknown name,
  /// another dtype or another shape; then no state has changed.
  void set_states(const Tensors& states);
  const std::shared_ptr<StateStore>& store() const;
  /// Its own, unless ExecutorOptions names one.
  const std::shared_ptr<ProcessShare>& share() const;

  /// A description of the states that change, by which checkpoints recognize their model.
  std::string model_of_states() const;
  /// Whether all ranks are in this process.
  bool is_together() const;
  /// A checkpoint made from copies of the states. Any thread may call its members while the executor runs on; they
  /// return an error message, "" if nothing went wrong.
  struct Saving {
    std::function<std::string()> write;  ///< the files of this process' ranks; frees the copies
    /// Call it once all processes have written; it does nothing in processes without rank 0.
    std::function<checkpoint::Outcome()> commit;
    std::function<void()> discard;  ///< instead of commit, if a process could not write
  };
  /// Copies the states that change, to save them in a folder of checkpoints, each element by the lowest rank that holds
  /// it. All processes call it.
  Saving save_states(const std::filesystem::path& folder, const checkpoint::Facts& facts, int64_t keep);
  /// Compares the outcomes of work that each process does by itself: returns nullopt while any process is not done,
  /// else the first problem, or "". All processes call it, with nullopt while they are not done.
  std::optional<std::string> common_problem(const std::optional<std::string>& own);
  /// Gives the states that change the values of a checkpoint of any mesh. Throws a user error if it is another model's.
  void load_states(const checkpoint::Checkpoint& checkpoint);

  /// The values of the program's symbols that these inputs imply. Throws a user error that names input, dimension and
  /// fix, also if no program runs at these sizes.
  Symbols bind_symbols(const Tensors& inputs) const;

  /// Makes the plans of a run with these symbol values, for all runs that may go on at once, and so loads the states.
  void prepare(const Symbols& symbols);
  /// Bytes of each rank in one run, states and arena, for those symbol values. Prepares the plans.
  std::vector<size_t> peak_bytes(const Symbols& symbols);
  /// Bytes that this process needs for all of its ranks, as its limit counts them, at the peak of the runs so far and
  /// of those for which peak_bytes() was called. Weights that ranks share count once; views of the model's data do not
  /// count; outputs do.
  size_t process_bytes() const;

  struct Kept {
    std::string name;
    Tensor value;
  };
  /// With keep_all: every value of the last run that is not partial, in running order, by its global name; the values
  /// are whole in the process of rank 0.
  std::vector<Kept> kept();

  /// With profile: the times of the last run, per rank of this process; empty if it failed, or there was none.
  std::vector<RankTimes> times() const;

  const spmd::Program& program() const;  ///< of rank 0
  int threads_per_rank() const;

 private:
  Tensors states_if(const std::function<bool(const std::string& name)>& is_wanted);

  struct Impl;
  class Teams;
  /// Calls `task` for each team of ranks that may run, once it does not.
  void for_each_team(const std::function<void(Impl&)>& task) const;
  Tensors run_on(Impl& impl, const Tensors& inputs, const RunLimits& limits, Tensors given);

  std::unique_ptr<Impl> impl_;
  std::unique_ptr<Teams> teams_;  // of runs at once, of which impl_ is one; null: there is only one
};

}  // namespace tessera::runtime

#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <utility>

#include "tessera/runtime/executor.h"
#include "tessera/runtime/plan_cache.h"
#include "tessera/runtime/process_memory.h"
#include "tessera/runtime/rank_team.h"
#include "tessera/runtime/sized_rank.h"
#include "tessera/runtime/tensor_pool.h"

namespace tessera::runtime {

/// The ranks of this process, and the plans that they run.
struct Executor::Impl {
  Impl(std::shared_ptr<const RankPrograms> programs, const ExecutorOptions& asked);

  std::shared_ptr<const RankPrograms> programs;
  ExecutorOptions options;
  device::MemoryLimit memory;
  std::shared_ptr<StateStore> store;
  std::mutex running;
  RankTeam team;
  PlanCache plans;
  std::shared_ptr<const void> room_to_save;  ///< of the limit, for copies of the states, with `saves`
  /// Memory for outputs, where the ranks that make them can reach.
  TensorPool pool{memory,
                  [this](size_t bytes) { return team.world().allocate(team.here().front(), bytes, "an output"); }};
  size_t most_running = 0;           ///< bytes that a run needs beside states, at most
  PlanSet* uncommitted = nullptr;    ///< whose run has ended well, and whose states have not stepped yet
  PlanSet* last = nullptr;           ///< of the last run; null if it has been dropped since
  std::vector<RankTimes> times;      ///< of the last run, with profile
  Tensors last_inputs;               ///< with keep_all: kept values may be views of them
  Symbols last_symbols;              ///< of the last run
  std::vector<const Tensors*> lent;  ///< what communications of a task may read or write that is not the ranks'
  bool compared = false;             ///< what ranks have loaded
  std::exception_ptr unlike;         ///< what came of it, if ranks differ: there will be no run

  void commit() {
    if (PlanSet* plans_to_commit = std::exchange(uncommitted, nullptr))
      for (auto& plan : *plans_to_commit) plan->commit();
  }
  /// RankTeam::on_all(), of a task whose communications use these tensors, too.
  void on_all(const std::function<void(size_t)>& task, std::vector<const Tensors*> tensors = {});
  /// The sizes that `bind` finds, which are the same for all ranks, as the inputs are, also where each process is given
  /// inputs of its own.
  Symbols alike(const Tensors& inputs, const std::function<Symbols()>& bind);
  /// Throws a user error unless the caller's memory for outputs fits them, and is apart from the inputs' and each
  /// other.
  void require_outputs(const Tensors& wanted, const Tensors& inputs, const Symbols& symbols) const;
  /// Memory for a run's outputs: what the caller wants them in, if ranks can write there directly. Where there is none,
  /// processes that wait for this one are told.
  Tensors take_outputs(const PlanSet& set, const Symbols& symbols, const Tensors& wanted, bool is_direct);

  /// The plans for these sizes, which are made unless they are there. Throws a user error if they do not fit into the
  /// limit: before anything of them is loaded, if they are the first of their programs.
  PlanSet& plan(const Symbols& symbols);
  /// What this process holds at its peak, in runs of any plan that was made.
  size_t process_bytes() const;

 private:
  void compute_all_in_steps();
  void drop_plans_of_failed_world();

  using SizedRanks = std::vector<std::unique_ptr<SizedRank>>;
  PlanSet made_plans(const std::shared_ptr<const RankPrograms>& chosen, const Symbols& symbols);
  SizedRanks require_room_to_load(const std::shared_ptr<const RankPrograms>& chosen, const Symbols& symbols);
  void require_room_for(const SizedRanks& sized, const RankPrograms& chosen, const Symbols& symbols) const;
  void require_memory(const PlanSet& made, const Symbols& symbols) const;
  void compare_loaded();
  void agree_on(const std::vector<std::exception_ptr>& failures);
  void forget_unused(const std::shared_ptr<const RankPrograms>& of);
  void drop_oldest_plans();

  bind::Options bind_options() const { return {options.keep_all, options.overlap, options.prefetch}; }
  size_t bytes_to_save() const;
  size_t arenas_of(const PlanSet& made) const;
  ProcessMemory needed_to_run(const PlanSet& made, const Symbols& symbols, size_t copies) const;
};

}  // namespace tessera::runtime

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
  std::shared_ptr<const void> room_to_save;  ///< held in the limit for copies of the states, with `saves`
  /// Memory for outputs that the ranks can reach.
  TensorPool pool{memory,
                  [this](size_t bytes) { return team.world().allocate(team.here().front(), bytes, "an output"); }};
  size_t most_running = 0;           ///< the most bytes that a run needs beside states
  PlanSet* uncommitted = nullptr;    ///< whose run has succeeded, and whose states have not stepped yet
  PlanSet* last = nullptr;           ///< of the last run; null if it has been dropped since
  std::vector<RankTimes> times;      ///< of the last run, with profile
  Tensors last_inputs;               ///< with keep_all: kept values may be views of them
  Symbols last_symbols;              ///< of the last run
  std::vector<const Tensors*> lent;  ///< the caller's tensors that communications of a task may use
  bool compared = false;             ///< whether ranks have compared what they have loaded
  std::exception_ptr unlike;         ///< the error if they differ: then nothing runs

  void commit() {
    if (PlanSet* plans_to_commit = std::exchange(uncommitted, nullptr))
      for (auto& plan : *plans_to_commit) plan->commit();
  }
  /// RankTeam::on_all() for a task whose communications also use these tensors.
  void on_all(const std::function<void(size_t)>& task, std::vector<const Tensors*> tensors = {});
  /// The sizes that `bind` finds. Throws on all ranks unless all processes were given the same sizes and inputs.
  Symbols alike(const Tensors& inputs, const std::function<Symbols()>& bind);
  /// Throws a user error unless the caller's memory fits the outputs, and overlaps neither inputs nor other outputs.
  void require_outputs(const Tensors& wanted, const Tensors& inputs, const Symbols& symbols) const;
  /// Memory for a run's outputs: the caller's, if ranks can write there directly. If there is not enough, processes
  /// that wait for this one hear of it.
  Tensors take_outputs(const PlanSet& set, const Symbols& symbols, const Tensors& wanted, bool is_direct);

  /// The plans for these sizes, which are made if they do not exist. Throws a user error if they do not fit into the
  /// limit; for the first plans of programs, before anything is loaded.
  PlanSet& plan(const Symbols& symbols);
  /// Bytes that this process holds at its peak, in runs of any plan made so far.
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

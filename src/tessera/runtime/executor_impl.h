#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <set>
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
  /// `first`: of those that run at once; null: this.
  Impl(std::shared_ptr<const RankPrograms> programs, const ExecutorOptions& asked, Impl* first = nullptr);
  ~Impl() { share->arenas -= arenas; }

  std::shared_ptr<const RankPrograms> programs;
  ExecutorOptions options;
  Impl* first;
  std::shared_ptr<ProcessShare> share;
  device::MemoryLimit& memory = share->limit;
  std::shared_ptr<StateStore> store;
  std::mutex running;
  RankTeam team;
  PlanCache plans;
  std::shared_ptr<const void> room_to_save;  ///< of the limit, for copies of the states, with `saves`
  TensorPool& pool = share->outputs;
  std::atomic<size_t> arenas = 0;  ///< bytes, of all that run at once, in the share; in the first, set under `planning`
  std::set<Symbols> planned;       ///< sizes for which there is room for all of them; likewise
  std::atomic<size_t> most_running = 0;  ///< bytes that runs at once need beside states, at most
  PlanSet* uncommitted = nullptr;        ///< whose run has ended well, and whose states have not stepped yet
  PlanSet* last = nullptr;               ///< of the last run; null if it has been dropped since
  std::vector<RankTimes> times;          ///< of the last run, with profile
  Tensors last_inputs;                   ///< with keep_all: kept values may be views of them
  Symbols last_symbols;                  ///< of the last run
  std::vector<const Tensors*> lent;      ///< what communications of a task may read or write that is not the ranks'
  bool compared = false;                 ///< what ranks have loaded
  std::exception_ptr unlike;             ///< the error, if ranks differ: then there is no run

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
  bool stops_together(const PlanSet& set) const;
  /// Memory for a run's outputs: what the caller wants them in, if ranks can write there directly. Where there is none,
  /// processes that wait for this one are told.
  Tensors take_outputs(const PlanSet& set, const Symbols& symbols, const Tensors& wanted, bool is_direct);

  /// The plans for these sizes, which are made if they do not exist. Throws a user error if they do not fit into the
  /// limit; for the first plans of programs, before anything is loaded.
  PlanSet& plan(const Symbols& symbols);
  /// Of all executors of the share, once these plans run at once.
  size_t all_arenas_with(const PlanSet& set) const;
  /// Adds what its ranks hold from run to run.
  void add_held(ProcessMemory& all) const;

 private:
  std::shared_ptr<ProcessShare> own_share() const;
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
  bool has_loaded(const WeightForm& form) const { return store->weights()->find(form).owner != nullptr; }
  /// What is noted once for all that run at once.
  Impl& group() { return first ? *first : *this; }
  const Impl& group() const { return first ? *first : *this; }
  size_t runs_at_once() const { return static_cast<size_t>(options.concurrent_runs); }
  bool is_planned(const Symbols& symbols) const { return group().planned.contains(symbols); }
  size_t other_arenas() const {
    const size_t all = share->arenas;
    return all - std::min<size_t>(all, group().arenas);
  }
  void note_planned(const PlanSet& made, const Symbols& symbols);
  ProcessMemory needed_to_run(const PlanSet& made, const Symbols& symbols, size_t copies) const;
};

}  // namespace tessera::runtime

#pragma once

#include <memory>
#include <string>

#include "tessera/runtime/rank_plan.h"

namespace tessera::runtime {

/// A rank's plan in a dry run: it counts the bytes that a run would hold, and holds almost nothing.
struct SizedRank {
  struct Options {
    int threads = 1;
    std::string device = "cpu";
    bind::Options binding;
  };

  SizedRank(const std::shared_ptr<const RankPrograms>& programs, int rank, const Symbols& symbols,
            const Options& options)
      : state(programs->mesh(), rank, options.threads, states, device::make_device(options.device)),
        plan(state, programs, symbols, options.binding) {}
  /// The same for a rank that will run the plan on its device, beside what it holds of states already. Refuses any
  /// single tensor that exceeds `limit`.
  SizedRank(RankState& rank, const std::shared_ptr<const RankPrograms>& programs, const Symbols& symbols,
            const Options& options, const device::MemoryLimit& limit)
      : states(rank.states()),
        state(programs->mesh(), rank.rank(), options.threads, states,
              device::make_device(options.device, rank.device().index()), &limit),
        plan(planned_for(state, rank), programs, symbols, options.binding) {}

  RankStates states;
  RankState state;
  RankPlan plan;

 private:
  static RankState& planned_for(RankState& state, RankState& rank) {
    state.plan_for(rank);
    return state;
  }
};

}  // namespace tessera::runtime

#pragma once

#include <map>
#include <set>
#include <string>

#include "tessera/runtime/rank_state.h"

namespace tessera::runtime {

/// The results of a rank's init, and its peak of memory: its arena, the shards that it read, and its results.
struct InitResults {
  std::map<std::string, Tensor> values;  ///< the rank's parts; without data in a dry run
  LoadPeak peak;
};

/// Runs the part of the rank's init (spmd/partition/init.h) that makes these derived states; in a dry run, only sizes
/// it. Releases the shards that only init reads. Called from the rank's own thread.
InitResults run_init(const RankPrograms& programs, RankState& rank, const std::set<std::string>& names);

/// The machine program of the whole init as text; "" if the program has none. Nothing is loaded.
std::string machine_text_of_init(const RankPrograms& programs, int rank, int threads,
                                 std::shared_ptr<device::Device> device);

/// For each derived state of the program, a number that is equal if init computes the same from the same data, on a
/// rank at `coordinates`. `number_of_state` gives such a number for a state that init reads.
std::map<const Value*, uint64_t> derivations(const spmd::Program& program, const std::vector<int64_t>& coordinates,
                                             const std::function<uint64_t(const Value*)>& number_of_state);

}  // namespace tessera::runtime

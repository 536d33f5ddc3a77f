#pragma once

#include <map>

#include "tessera/runtime/rank_state.h"

namespace tessera::runtime {

/// What a process needs at its peak for all of its ranks, which is what its limit counts: arenas, states that change,
/// and weights that are not views of the model's data, those that ranks share once.
class ProcessMemory {
 public:
  /// `beside`: bytes of outputs, and of copies of states.
  explicit ProcessMemory(size_t beside) : beside_(beside) {}

  /// Ranks come in their order. `arena`: of the rank, with the host's copies.
  void add(const RankState& rank, size_t arena);
  /// Weights that a rank holds for other programs, too.
  void add_weights(const RankWeights& weights);

  /// Bytes of what stays from run to run.
  size_t states() const { return weights_bytes_ + changing_; }
  /// While a run goes on, or while weights are loaded, whichever is more.
  size_t peak() const;
  /// Names the states, and what loading them takes, for messages.
  void add_to(std::vector<device::NamedBytes>& pieces) const;

 private:
  size_t take(const std::map<WeightForm, size_t>& own);

  size_t beside_, arenas_ = 0, changing_ = 0, weights_bytes_ = 0;
  size_t loading_ = 0;  ///< bytes beside all states while a rank packs what takes most
  size_t between_ = 0;  ///< bytes beside all states that ranks hold while another one packs
  std::map<WeightForm, size_t> weights_;
};

}  // namespace tessera::runtime

#pragma once

#include <map>

#include "tessera/runtime/rank_state.h"

namespace tessera::runtime {

inline constexpr const char* kCopiesToSave = "copies of states for checkpoints";

/// The extents at these sizes.
Dims bound_dims(const Shape& shape, const Symbols& symbols);

/// Bytes of a program's whole outputs, by name. A user error if an output is too large to count.
std::map<std::string, size_t> output_bytes(const RankPrograms& programs, const Symbols& symbols);

/// What a process needs at its peak for all of its ranks, as its limit counts it: arenas, states that change, outputs,
/// copies of states for checkpoints, and weights that are not views of the model's data. Shared weights count once.
class ProcessMemory {
 public:
  /// A rank's part, by bytes.
  struct Need {
    int rank = 0;
    bool shares = true;                    ///< whether it shares weights with other ranks
    std::map<WeightForm, size_t> weights;  ///< not views
    std::map<std::string, size_t> states;  ///< that change, with their spares
    size_t constants = 0;                  ///< the device's copies
    size_t arena = 0;                      ///< with the host's copies
    LoadPeak load;
  };
  static Need need_of(const RankState& rank, size_t arena);

  /// Add ranks in their order. A rank that runs several programs is added with each; its states count once.
  void add(const Need& need);
  /// Adds the weights that a rank holds, also for other programs.
  void add_weights(const RankState& rank);
  /// `copies`: bytes of copies of states.
  void add_outputs(const std::map<std::string, size_t>& outputs, size_t copies);
  /// Adds bytes that are needed during a run, beside all states.
  void add_running(size_t bytes);

  /// Bytes that stay from run to run.
  size_t states() const { return weights_bytes_ + changing_; }
  /// The peak during a run or while weights are loaded, whichever is more.
  size_t peak() const;
  /// Adds outputs, copies and states, and the memory for loading, by name: for messages.
  void add_to(std::vector<device::NamedBytes>& pieces) const;

 private:
  size_t take(const Need& need);

  size_t running_ = 0, changing_ = 0, weights_bytes_ = 0, copies_ = 0;
  size_t loading_ = 0;  ///< bytes beside all states while a rank packs what takes most
  size_t between_ = 0;  ///< bytes beside all states that ranks hold while another one packs
  std::map<WeightForm, size_t> weights_;
  std::map<std::pair<int, std::string>, size_t> states_;  // by rank
  std::map<std::string, size_t> outputs_;
};

}  // namespace tessera::runtime

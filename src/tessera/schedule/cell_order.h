#pragma once

#include "tessera/schedule/table.h"

namespace tessera::schedule {

/// An order of all ranks' cells together in which each comes after what it waits for, and each rank's cells are in
/// their order: by their starts, if every forward pass, gradient of inputs and gradient of weights of a rank takes
/// equally long.
class CellOrder {
 public:
  /// Throws the errors of check_pipeline.
  explicit CellOrder(const PipelineTable& table);

  bool trains() const { return trains_; }
  int64_t stages() const { return stages_; }
  int64_t micro_batches() const { return micro_batches_; }
  /// The number of the cell that does this; of a B for both of its gradients.
  int64_t of(Work work, int64_t stage, int64_t micro_batch) const {
    return of_[static_cast<size_t>(work)][static_cast<size_t>(stage * micro_batches_ + micro_batch)];
  }

  /// Whether the gradients of inputs and of weights have a cell each.
  bool divides(int64_t stage, int64_t micro_batch) const {
    return of(Work::input_gradient, stage, micro_batch) != of(Work::weight_gradient, stage, micro_batch);
  }

 private:
  void number(const Action& action, int64_t cell);

  int64_t stages_, micro_batches_;
  bool trains_ = false;
  std::vector<std::vector<int64_t>> of_;  // by work, then stage and micro-batch
};

}  // namespace tessera::schedule

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/ops/library/node_builder.h"

namespace tessera::train {

/// The scale of a loss, so that gradients in few bits neither vanish nor overflow. A dynamic one falls when they do.
class Scaling {
 public:
  /// `spec` as in StepOptions::loss_scale.
  Scaling(ops::NodeBuilder& build, const std::string& spec);

  /// What the loss is multiplied by, a scalar of that type.
  Value* scale(DType type);
  /// A gradient divided by it.
  Value* unscaled(Value* gradient);
  /// The scale as a state; null if it does not change.
  Value* state() const { return scale_; }
  /// The states of the scale itself, and their next values. `good`: whether the step's loss and gradients are finite.
  std::vector<std::pair<Value*, Value*>> next(Value* good);

 private:
  ops::NodeBuilder& build_;
  double fixed_ = 1;
  bool dynamic_ = false;
  double growth_ = 2, backoff_ = 0.5, interval_ = 2000;
  Value *scale_ = nullptr, *good_ = nullptr;
};

}  // namespace tessera::train

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/ops/node_builder.h"

namespace tessera::train {

/// The scale of a loss, so that gradients in few bits neither vanish nor overflow, and what happens if they do: then no
/// state steps, on no rank, whichever rank has seen it.
class Scaling {
 public:
  /// `spec` as in StepOptions::loss_scale.
  Scaling(ops::NodeBuilder& build, const std::string& spec);

  /// What the loss is multiplied by, a scalar of that type.
  Value* scale(DType type);
  /// A gradient divided by it.
  Value* unscaled(Value* gradient);
  /// From now on asks whether this gradient is finite, if the scale is dynamic.
  void watch(Value* gradient);
  /// `stepped`, or `before` if a gradient that was watched is not finite.
  Value* unless_overflow(Value* stepped, Value* before);
  /// The states of the scale itself, and their next values.
  std::vector<std::pair<Value*, Value*>> next();

 private:
  Value* overflow();

  ops::NodeBuilder& build_;
  double fixed_ = 1;
  bool dynamic_ = false;
  double growth_ = 2, backoff_ = 0.5, interval_ = 2000;
  Value *scale_ = nullptr, *good_ = nullptr, *overflow_ = nullptr;
  std::vector<Value*> seen_;
};

}  // namespace tessera::train

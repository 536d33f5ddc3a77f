#pragma once

#include <memory>
#include <string>

#include "tessera/ops/library/node_builder.h"

namespace tessera::train {

/// One parameter in one step. All values have the parameter's type, scalars too.
struct Update {
  Value* parameter;  ///< a state
  Value* gradient;   ///< of its shape
  Value* rate;       ///< the learning rate, a scalar
  Value* time;       ///< the number of this step, from 1, a scalar
  bool decays;       ///< whether weight decay applies
};

/// The update of parameters, as nodes. It keeps states of the parameter's type, named "PARAMETER.momentum" and so on,
/// which start as zeros.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// The parameter's next value. Appends the states that it keeps, and their next values, to `kept`.
  virtual Value* step(ops::NodeBuilder& build, const Update& update,
                      std::vector<std::pair<Value*, Value*>>& kept) const = 0;
};

/// "NAME:key=number,…"; see docs/training.md for the formulas:
/// sgd (momentum, nesterov, weight_decay), adam and adamw (beta1, beta2, eps, weight_decay), lamb (the same), lion
/// (beta1, beta2, weight_decay), adafactor (beta2_decay, eps1, eps2, d, weight_decay), muon (momentum, nesterov, steps,
/// weight_decay, and adamw's keys for what is no matrix). Throws a user error for an unknown name or key.
std::unique_ptr<Optimizer> optimizer_named(const std::string& spec);

}  // namespace tessera::train

#pragma once

#include <memory>
#include <string>

#include "tessera/ops/library/node_builder.h"
#include "tessera/rules.h"

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

/// The optimizer of a rule. Throws a user error as value_of() does (optimizer_rules.h).
std::unique_ptr<Optimizer> make_optimizer(const tessera::Optimizer& rule);

}  // namespace tessera::train

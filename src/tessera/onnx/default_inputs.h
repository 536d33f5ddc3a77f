#pragma once

#include <string>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

/// An initializer that the file lists as an input, too, so that it is an input with a default.
struct DefaultInput {
  Value* value = nullptr;
  TensorType type;  ///< the input's; its symbols may have other sizes than the default
};

/// The inputs with defaults of an imported model, in order; none below IR version 4, where such initializers are
/// constants.
std::vector<DefaultInput> default_inputs(const OnnxModel& model);

/// Makes these initializers inputs, after the model's others. Throws a user error for a name that is not one of
/// default_inputs(), or that is given twice.
void make_inputs(OnnxModel& model, const std::vector<std::string>& names);

}  // namespace tessera

#pragma once

#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

/// An initializer that the file lists as an input, too, so that it is an input with a default.
struct DefaultInput {
  Value* value = nullptr;
  TensorType type;  ///< the input's; its symbols may have other sizes than the default
};

/// Those of an imported model, in the order of its inputs; none below IR version 4, where these are constants.
std::vector<DefaultInput> default_inputs(const OnnxModel& model);

}  // namespace tessera

#pragma once

#include "tessera/ir/graph.h"

namespace tessera::program_io {

/// A model whose states step as a plain ONNX model, which any engine runs: each state is an initializer, and its value
/// after the step an output ("next.NAME"). Sizes are computed by nodes.
OnnxModel plain_step(const OnnxModel& stepping);

}  // namespace tessera::program_io

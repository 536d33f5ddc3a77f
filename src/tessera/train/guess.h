#pragma once

#include <map>
#include <optional>
#include <string>

#include "tessera/ir/graph.h"

namespace tessera::train {

/// Of initializers whose elements an operator needs before the run (a Resize's scales): that operator's label. No such
/// initializer is a parameter.
std::map<std::string, std::string> read_before_runs(const OnnxModel& model);

/// If the file does not say: the reason to take an initializer for a constant, by the nodes that read it: "only Mul
/// reads it, …" for a table that is multiplied with, element by element; "… holds -inf" for a mask. Parameters that are
/// multiplied so scale one dimension.
std::optional<std::string> looks_constant(const Value& initializer);

}  // namespace tessera::train

#pragma once

#include <string>
#include <vector>

#include "tessera/compiler/device_plan.h"

namespace tessera::compiler {

/// Nodes whose annotated operand layouts the operator cannot compute with, so that operands need a layout change first:
/// a dimension that must be whole is split, dimensions that must be split alike are not, or two that must not be split
/// over the same devices are. Operands that only an operator made by rewriting combines may have any layout. `compiled`
/// was compiled from the plan, whose model is `model`.
std::vector<DeviceFault> operator_faults(const Compiled& compiled, const OnnxModel& model, const DevicePlan& plan,
                                         const std::string& name);

}  // namespace tessera::compiler

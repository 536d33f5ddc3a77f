#pragma once

#include <string>
#include <vector>

#include "tessera/compiler/device_plan.h"

namespace tessera::compiler {

/// Nodes whose operands, laid out as annotated, have layouts with which the operator cannot compute: a dimension that
/// must be whole is split, dimensions that must be split alike are not, or two that must not be split over the same
/// devices are. Layouts have to be changed before the operator then. Operands that no node of the file takes together,
/// but an operator that rewriting makes of several, may have any layout. `compiled` comes of the plan, whose model is
/// `model`.
std::vector<DeviceFault> operator_faults(const Compiled& compiled, const OnnxModel& model, const DevicePlan& plan,
                                         const std::string& name);

}  // namespace tessera::compiler

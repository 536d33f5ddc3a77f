#pragma once

#include <set>
#include <string>

#include "tessera/compiler/device_plan.h"

namespace tessera::compiler {

/// Removes annotations that the other annotations of a plan imply, so that they do not prevent rewriting from raising
/// operators: those of results that rewriting would remove, if these results are computed and read in the same layout
/// without them. A model whose every tensor is annotated has many of these. `kept`: names of tensors that rewriting
/// keeps in any case.
void drop_implied(DevicePlan& plan, const std::set<std::string>& kept);

}  // namespace tessera::compiler

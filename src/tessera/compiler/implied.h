#pragma once

#include <set>
#include <string>

#include "tessera/compiler/device_plan.h"

namespace tessera::compiler {

/// Takes annotations out of a plan that the others imply, so that they do not keep rewriting from raising what is
/// computed: those of results that rewriting would remove, if these lie so without them, and are read so. A model whose
/// every tensor is annotated has many of them. `kept`: tensors that survive rewriting in any case.
void drop_implied(DevicePlan& plan, const std::set<std::string>& kept);

}  // namespace tessera::compiler

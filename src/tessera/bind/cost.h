#pragma once

#include "tessera/bind/groups.h"
#include "tessera/bind/machine.h"

namespace tessera::bind {

/// The floating-point operations of the program's nodes in this group; 0 if they are negligible.
Expr flops_of(const NodeGroup& group);

/// The cost of a step. `flops`: those of its group, at the sizes of the step.
Cost cost_of(const NodeGroup& group, const Step& step, int64_t flops);

}  // namespace tessera::bind

#pragma once

#include <string>

#include "tessera/bind/groups.h"
#include "tessera/bind/machine.h"
#include "tessera/cost/kernels.h"

namespace tessera::bind {

/// "float32[8,768]", with blocks and strides if there are any; "-": absent.
std::string type_text(const kernels::TensorDesc& desc);

/// A description of a kernel's step: its operators with their attributes and wiring, and the types of its operands
/// (with "*": a weight) and results. Steps with the same signature take the same time on the same machine, as far as
/// time does not depend on the elements.
std::string signature_of(const NodeGroup& group, const Step& step);

/// What a step does in a run, as far as its time depends on it.
struct StepWork : cost::KernelWork {
  double runs = 1;      ///< iterations of the loops around it; loops of unknown length count once
  bool joined = false;  ///< a bucket of collectives, which copies their operands together and their results apart
};

}  // namespace tessera::bind

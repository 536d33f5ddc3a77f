#pragma once

#include <map>
#include <string>

#include "tessera/cost/kernels.h"
#include "tessera/cost/prices.h"
#include "tessera/spmd/program.h"

namespace tessera::passes {

/// What a node of a program does on one rank, as a kernel of its own; symbols have their hinted sizes.
cost::KernelWork work_of(const Node& node, const std::map<std::string, int64_t, std::less<>>& hints);

/// Its seconds by the prices of a machine: of the kernel, or of the communication over its axes.
double seconds_of(const Node& node, const spmd::Program& program, const cost::Prices& prices);

/// The same or, without a machine (null), in bytes of memory traffic: on today's devices, a byte takes as long as about
/// ten FLOPs, and a tenth of a byte over a link.
double cost_of(const Node& node, const spmd::Program& program, const cost::Prices* prices);

}  // namespace tessera::passes

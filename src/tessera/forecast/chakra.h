#pragma once

#include <vector>

#include "tessera/mesh/mesh.h"
#include "tessera/sim/predict.h"
#include "tessera/time.h"

/// Execution traces in the form of MLCommons' Chakra, for simulators of networks such as ASTRA-sim.
namespace tessera::forecast {

/// Of each class ".RANK.et", named by its first rank: a node for each kernel and communication of the machine program.
/// It depends on the nodes whose results it needs and on those that its queue runs before; these come earlier in the
/// file. All are data_deps, since Chakra's own reader ignores ctrl_deps. A loop's body is there once, with the
/// operations and bytes of all iterations.
/// ".groups.json": the ranks of all groups that communicate, by the numbers that nodes name (pg_name).
/// ".classes.json": for each file, the ranks that it stands for.
std::vector<TraceFile> chakra_traces(const sim::Predicted& predicted, const Mesh& mesh);

}  // namespace tessera::forecast

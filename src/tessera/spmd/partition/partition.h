#pragma once

#include "tessera/spmd/decide/decide.h"
#include "tessera/spmd/program.h"

namespace tessera::spmd {

/// Emits the SPMD program that the decisions describe: every node becomes its local form on local operands, every edge
/// whose layouts differ becomes communication, shared by all consumers that want the same layout. Nodes that are placed
/// (NodeLayout::at) have their operands brought to their place and leave their results there; inputs are everywhere.
///
/// `graph` has types (ops::infer_types) and no unknown shapes. Inputs and outputs keep their names and order.
Program partition(const Graph& graph, const Layout& layout, const Decisions& decisions, const Mesh& mesh,
                  const Hints& hints);

}  // namespace tessera::spmd

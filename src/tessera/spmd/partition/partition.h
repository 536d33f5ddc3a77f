#pragma once

#include "tessera/spmd/decide/decide.h"
#include "tessera/spmd/program.h"

namespace tessera::spmd {

/// Emits the SPMD program that the decisions describe: every node becomes its local form on local operands, and every
/// edge whose ends have different layouts becomes communication, which all consumers that want the same layout share.
/// Operands of placed nodes (NodeLayout::at) are brought to the node's place, where its results stay; inputs are
/// everywhere.
///
/// `prices`: as in decide(). `graph` has types (ops::infer_types) and no unknown shapes. Inputs and outputs keep their
/// names and order.
Program partition(const Graph& graph, const Layout& layout, const Decisions& decisions, const Mesh& mesh,
                  const Hints& hints, const cost::Prices* prices = nullptr);

}  // namespace tessera::spmd

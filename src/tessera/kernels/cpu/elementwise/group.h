#pragma once

#include "tessera/kernels/kernel.h"

namespace tessera::kernels {

/// Whether elementwise_group can run the node's kernel.
bool can_group(const Node& node);

/// Whether element-wise nodes whose result has extents `result`, and which read operands of these types, can go
/// through memory together in rows that are long enough to pay for a pass of each node.
bool has_long_rows(const Node& root, const Dims& result, const std::vector<TensorDesc>& operands);

/// The kernel of element-wise nodes, the root and its followers, whose results all have the extents of the last one's.
/// Nodes in a row that the compiler knows (jit/function.h) are one loop, others run with their own kernels; if there
/// are others, all works in pieces that fit the first cache. So only the requested results are stored, and the
/// bits are those of the single nodes. Operands may be strided. A result may be in the memory of an operand of its
/// extents and element size that no later node reads.
std::unique_ptr<Kernel> elementwise_group(const PrepareContext& context);

}  // namespace tessera::kernels

#pragma once

#include "tessera/kernels/kernel.h"

namespace tessera::kernels {

/// Whether a node is one of those whose kernels elementwise_group can run.
bool can_group(const Node& node);

/// Whether element-wise nodes whose result has extents `result`, and which read operands of these types, can go
/// through memory together, in rows long enough to be worth a pass of each node.
bool has_long_rows(const Node& root, const Dims& result, const std::vector<TensorDesc>& operands);

/// The kernel of element-wise nodes, the root and its followers, whose results all have the extents of the last one's:
/// piece by piece of what fits the first cache, by each node's own kernel, so that only the last result is stored, and
/// bits are those that the nodes alone give. Operands may be strided. A result may be where an operand of its extents
/// is.
std::unique_ptr<Kernel> elementwise_group(const PrepareContext& context);

}  // namespace tessera::kernels

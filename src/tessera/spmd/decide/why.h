#pragma once

#include <string>

#include "tessera/spmd/decide/decide.h"

namespace tessera::spmd {

/// Why a node takes operand `index` whole along dimensions over which its maker splits it, in words; "" if it does not.
/// Example: "TopK 'top' needs dimension 1 whole". `from` is the operand's layout.
std::string why_gathered(const NodeLayout& node, const NodeDecision& decision, size_t index, const Sharding& from,
                         const Mesh& mesh);

}  // namespace tessera::spmd

#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::ops {

/// Elements that a Pad adds before and after each dimension, negative ones to take away; nullopt if that depends on
/// data. Throws a user error that names the node if there are not two for each axis.
std::optional<std::vector<std::pair<Expr, Expr>>> paddings(const Node& node);

}  // namespace tessera::ops

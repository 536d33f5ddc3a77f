#pragma once

#include <string>

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// A text that is equal for two nodes if they are the same operator with equal attributes and regions, want the same of
/// their results, and have operands of the same kind: results or inputs, whichever they are; states of equal types;
/// constants of equal data. Names do not count.
std::string kind_of(const Node& node);

}  // namespace tessera::rewrite

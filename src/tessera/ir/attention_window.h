#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "tessera/ir/graph.h"

namespace tessera {

/// The number of keys that a query of an Attention sees on one side, by its attribute left_window_size or
/// right_window_size; -1: all keys (fewer than 2^31).
inline int64_t window_of(const Node& node, std::string_view attribute) {
  const int64_t keys = node.get_int(attribute, -1);
  return keys < 0 || keys > std::numeric_limits<int32_t>::max() ? -1 : keys;
}

}  // namespace tessera

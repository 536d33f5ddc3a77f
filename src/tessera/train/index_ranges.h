#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::train {

/// Integers that an input of a step may hold: 0 to `count` - 1, and `ignored`.
struct IndexRange {
  std::string input;
  int64_t count = 0;
  std::optional<int64_t> ignored;
  std::string meaning;  ///< what they count: "the classes of 'logits'", "the rows of 'embed'"
};

/// The ranges of inputs that look up slices of parameters or constants, as tokens look up rows of an embedding.
/// Operators may move an input's elements or cast them before. Tables whose extent is not a number yet are left out.
std::vector<IndexRange> lookups(const Graph& graph);

}  // namespace tessera::train

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// An Einsum's equation, read for operands of given ranks: per operand and for the result, one label per dimension. A
/// letter labels itself; the dimensions of an ellipsis are labelled "e0", "e1", … counted from the right, so that they
/// broadcast. Example: "b...i,ij" for ranks 3 and 2 is {b e0 i}, {i j} -> {e0 b j}.
struct EinsumEquation {
  std::vector<std::vector<std::string>> operands;
  std::vector<std::string> result;

  /// Throws user errors, stage "shape", that begin with `label`, the node's.
  static EinsumEquation read(std::string_view text, const std::vector<size_t>& ranks, std::string_view label);
};

}  // namespace tessera

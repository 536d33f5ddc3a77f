#pragma once

#include <optional>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// The elements, in row-major order, of an integer value that OneHot, Reshape, Transpose, Slice and Cast make from
/// lists whose elements are known, through any rank. Shape computation follows only lists; this function also finds
/// values that exporters turn into a matrix on the way: PyTorch's (last dimension first) paddings become ONNX's as
///
///     Reshape [-1, 2] → Slice [::-1] → Transpose → Reshape [-1]
///
/// and the repeats of repeat_interleave are a row of a OneHot.
///
/// Nullopt if they are unknown. The types of all values that this one depends on must be known.
std::optional<std::vector<Expr>> known_elements(const Value* value);

}  // namespace tessera::rewrite

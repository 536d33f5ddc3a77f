#pragma once

#include <optional>

#include "tessera/mesh/box.h"

namespace tessera {

/// A region in units of whole bytes: elements, or bytes that hold several of them along the last dimension. Nullopt if
/// the region cuts through a byte: [4, 6] of int4 are [4, 3] bytes, and columns 2 and 3 are one column of bytes.
std::optional<CopiedBox> byte_box(const Box& box, DType dtype);

}  // namespace tessera

#pragma once

#include <optional>

#include "tessera/mesh/box.h"

namespace tessera {

/// A region in units of whole bytes: elements, or bytes that hold several elements along the last dimension. Example:
/// [4, 6] of int4 is [4, 3] bytes, and columns 2 and 3 are one column of bytes. Nullopt if the region cuts through a
/// byte.
std::optional<CopiedBox> byte_box(const Box& box, DType dtype);

}  // namespace tessera

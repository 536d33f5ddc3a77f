#pragma once

#include <vector>

#include "tessera/ir/expr.h"

namespace tessera::train {

/// The dimensions of logits that may hold the classes, since labels lack just these: of logits [N, C, H, W] and labels
/// [N, H, W], 1; of [batch, sequence, classes] and [batch, sequence], 2; of [2, 7, 7] and [2, 7], both 1 and 2. The
/// first dimension is the batch's: it is not compared, and holds no classes. Extents of logits that are not numbers yet
/// fit any number.
std::vector<size_t> class_axes(const Shape& logits, const Shape& labels);

}  // namespace tessera::train

#pragma once

#include <optional>

#include "tessera/ir/tensor.h"

namespace tessera {

/// The tensor with elements of another type, if every element has its value there: int32 labels as int64, float64
/// numbers that are float32's, 0 and 1 as booleans. NaN stays NaN. Nullopt if an element would change, between floats
/// and others, and for types other than booleans, integers of 8 to 64 bits, float16, bfloat16, float32 and float64.
std::optional<Tensor> exactly_as(const Tensor& tensor, DType to);

}  // namespace tessera

#pragma once

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// Makes a float32 model compute in bfloat16; its inputs and outputs stay float32.
///
/// Values that depend on a parameter of rank 2 or more, or on a float input, become bfloat16, with their parameters.
/// Values computed from indices alone (rotary angles, masks) stay float32 up to where they meet the others, since 8
/// bits of mantissa cannot tell positions apart. Constants beyond bfloat16's range become its largest finite value, so
/// that a mask's -3.4e38 stays finite. Types other than bfloat16 are an internal error; float32 changes nothing.
///
/// Runs after the other passes; types are known before and after.
void lower_precision(OnnxModel& model, DType compute);

}  // namespace tessera::rewrite

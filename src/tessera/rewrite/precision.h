#pragma once

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// The float32 elements of a tensor of 16-bit floats. Those of a large one are made on demand.
Tensor widened(const Tensor& narrow);

/// Makes a float32 model compute in bfloat16 or float16; its inputs and outputs stay float32.
///
/// Values that depend on a parameter of rank 2 or more, or on a float input, become 16-bit floats, with their
/// parameters. Values computed from indices alone (rotary angles, masks) stay float32 up to where they meet the others,
/// since 8 or 11 bits of mantissa cannot tell positions apart. Constants beyond the type's range become half its
/// largest finite value, so that a mask's -3.4e38 stays finite, also with a score added to it; those below it become
/// its smallest value instead of 0. Other types are an internal error; float32 changes nothing.
///
/// Runs after the other passes; types are known before and after.
///
/// A state that changes must be one that only_moves; it becomes narrow itself.
void lower_precision(OnnxModel& model, DType compute);

/// Whether a state's next value holds its elements, unchanged, and others that a run writes: those of a cache, which
/// are rounded once, whereas a sum would be in each run.
bool only_moves(const Value& state);

}  // namespace tessera::rewrite

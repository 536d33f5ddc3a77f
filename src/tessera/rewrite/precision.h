#pragma once

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// The elements of a tensor of 16-bit floats as float32. Those of a large tensor are computed on demand.
Tensor widened(const Tensor& narrow);

/// Makes a float32 model compute in bfloat16 or float16; its inputs and outputs stay float32.
///
/// Values that depend on a parameter of rank 2 or more, or on a float input, become 16-bit floats, with their
/// parameters. Values computed from indices alone (rotary angles, masks) stay float32 until an operator combines them
/// with others, since 8 or 11 bits of mantissa cannot distinguish positions. Constants beyond the type's range become
/// half its largest finite value, so that a mask's -3.4e38 stays finite, also with a score added to it; those below it
/// become its smallest value instead of 0. Other types are an internal error; with float32 it does nothing.
///
/// Runs after the other passes; types are known before and after.
///
/// A state that changes must satisfy only_moves(); it becomes narrow itself.
void lower_precision(OnnxModel& model, DType compute);

/// Whether a state's next value consists of the state's elements, unchanged, and of elements that a run writes. A cache
/// is rounded once; a sum would be rounded in each run.
bool only_moves(const Value& state);

}  // namespace tessera::rewrite

#pragma once

#include <cstdint>
#include <span>

#include "tessera/ir/dtype.h"
#include "tessera/ir/reduction.h"

namespace tessera::comm {

/// Whether reduce_elements knows this pair: floats of 16, 32 and 64 bits, integers of 8 to 64 bits, and bool (whose
/// sum and max are `or`, whose min is `and`, and which has no mean).
bool can_reduce(DType dtype, Reduction reduction);

/// Every outputs[k][i] = the reduction of inputs[0][i], inputs[1][i], … in that order, for 0 <= i < count.
///
/// 16-bit floats are combined in float32 and rounded once, to nearest even. Integers wrap; their mean rounds towards
/// zero. A NaN in any input gives NaN, for max and min too. An output may be one of the inputs, but must not overlap
/// them otherwise.
void reduce_elements(DType dtype, Reduction reduction, std::span<const void* const> inputs,
                     std::span<void* const> outputs, int64_t count);

/// The type in which elements are combined: float32 for 16-bit floats, uint8 (0 or 1) for bool, otherwise their own.
DType wide_type(DType dtype);
/// to[i] = from[i] in the wide type. The buffers do not overlap.
void widen_elements(DType dtype, const void* from, void* to, int64_t count);
/// out[i] = wide[i], divided by `members` for a mean, rounded to `dtype`; wide and out may be one buffer of one type.
void narrow_elements(DType dtype, Reduction reduction, int64_t members, const void* wide, void* out, int64_t count);

}  // namespace tessera::comm

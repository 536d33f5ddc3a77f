#pragma once

#include "tessera/ir/graph.h"

/// What is known of floats before a run.
namespace tessera::ops {

/// One finite number above zero that every rank knows: a constant, or a count (an expression of at least 1) that was
/// cast.
bool is_positive_number(const Value* value);

/// Whether no element is NaN or infinite, whatever the inputs are: integers, and constants and parameters whose data
/// say so, transposed or cut as may be. Reads the data.
bool are_finite(const Value* value);

}  // namespace tessera::ops

#pragma once

#include "tessera/ir/graph.h"

/// Properties of floats that are known before a run.
namespace tessera::ops {

/// Whether the value is one finite number above zero that every rank knows: a constant, or a cast count (an expression
/// of at least 1).
bool is_positive_number(const Value* value);

/// Whether no element is NaN or infinite, for any inputs. True for integers, and for constants and parameters with
/// finite data, also if nodes move them (OpDef::moves). Reads the data.
bool are_finite(const Value* value);

/// Whether all elements are zeros (none of them -0) in every run: of constants and parameters, of what nodes make of
/// these without computing, and of fillings.
bool are_zeros(const Value* value);

}  // namespace tessera::ops

#pragma once

#include "tessera/spmd/presets/presets.h"

namespace tessera::spmd {

/// The state that this value is or views; null if there is none.
const Value* weight_of(const Value* value);

/// Splits a weight's dimension over the preset's axis at the weight itself, so that all its uses know the split, also
/// those without the movement (a transpose) between the weight and the product.
void split_where_stored(PresetContext& context, const Value* weight, int dim);

}  // namespace tessera::spmd

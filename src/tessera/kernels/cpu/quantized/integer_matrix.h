#pragma once

#include "tessera/kernels/cpu/quantized/integer_strip.h"

namespace tessera::kernels {

/// The tile that multiplies by Intel's matrix extensions (AMX); null if the machine has none.
const IntegerTile* integer_matrix_tile();

}  // namespace tessera::kernels

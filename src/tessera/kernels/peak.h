#pragma once

#include "tessera/ir/dtype.h"

/// The rates that this machine's cores reach together, measured now. They give the floors of times.
namespace tessera::kernels {

/// FLOP/s of matrix products of 1024 rows and columns (1536 from 16 threads on), the right one packed or not; the best
/// of several. float32, bfloat16 or float16; 0 if the machine has no products of that type.
double peak_flops(DType dtype, int threads);

/// Bytes per second of reading 256 MiB; the best of several.
double peak_bandwidth(int threads);

}  // namespace tessera::kernels

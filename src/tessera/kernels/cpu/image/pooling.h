#pragma once

#include "tessera/kernels/kernel.h"

namespace tessera::kernels {

/// Whether oneDNN computes a MaxPool (without indices) or AveragePool from x to y: no window may be dilated, overhang
/// the end, or lie in the padding alone.
bool library_pools(const Node& node, const TensorDesc& x, const TensorDesc& y);

}  // namespace tessera::kernels

#pragma once

#include "tessera/kernels/kernel.h"

namespace tessera::kernels {

/// Whether oneDNN does a MaxPool (without indices) or AveragePool from x to y: no dilated windows, none that hang over
/// the end or lie in the padding alone.
bool library_pools(const Node& node, const TensorDesc& x, const TensorDesc& y);

}  // namespace tessera::kernels

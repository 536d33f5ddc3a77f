#pragma once

#include "tessera/kernels/kernel.h"

namespace tessera::kernels {

/// The kernel of the residual of a quantized network, in one loop: y = QuantizeLinear (Add (DequantizeLinear (a),
/// DequantizeLinear (b))), perhaps with Relu before the last, of codes of one byte with one scale each that lie alike.
/// The bits are those of the single nodes. Null: the group is another one.
std::unique_ptr<Kernel> sum_of_codes(const PrepareContext& context);

}  // namespace tessera::kernels

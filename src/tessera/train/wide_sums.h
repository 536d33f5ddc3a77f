#pragma once

#include "tessera/ir/graph.h"

namespace tessera::train {

/// A float32 gradient, without the rounding of the 16-bit sums that it is cast from: products, convolutions and sums of
/// 16-bit operands give the float32 numbers that they are computed in. Returns the same value if there is nothing to
/// gain, or if anything else reads the 16-bit sums. Replaced nodes stay without uses.
///
///   Cast(Transpose(MatMul(x, g)))   becomes   Transpose(tessera.MatMul<accumulate = "float32">(x, g))
Value* with_wide_sums(Graph& graph, Value* gradient);

/// Replaces nodes with float32 sums of 16-bit operands by ONNX's own operators on operands that are cast.
void cast_operands_of_wide_sums(Graph& graph);

}  // namespace tessera::train

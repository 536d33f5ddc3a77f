#pragma once

#include "tessera/ir/graph.h"

namespace tessera::train {

/// A float32 gradient, without the rounding of the 16-bit sums that it is cast from: products, convolutions and sums of
/// 16-bit operands give the float32 numbers that they are computed in. Returns the same value where there is nothing to
/// gain, or where something else reads the 16-bit sums. What is replaced is left without uses.
///
///   Cast(Transpose(MatMul(x, g)))   becomes   Transpose(tessera.MatMul<accumulate = "float32">(x, g))
Value* with_wide_sums(Graph& graph, Value* gradient);

/// Makes nodes that give float32 sums of 16-bit operands ones of ONNX's own operators, on operands that are cast.
void cast_operands_of_wide_sums(Graph& graph);

}  // namespace tessera::train

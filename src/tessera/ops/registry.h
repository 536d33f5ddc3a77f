#pragma once

#include <vector>

#include "tessera/ops/op.h"

/// The one visible list of operator families: each file provides its operators through one function named here.
namespace tessera::ops {

std::vector<OpDef> elementwise_ops();    // elementwise.cpp: unary, binary, comparison, Where, Clip, Cast, Gelu, …
std::vector<OpDef> shape_ops();          // shape.cpp: Shape, Size, Reshape, Flatten, Squeeze, Unsqueeze, Expand
std::vector<OpDef> movement_ops();       // movement.cpp: Transpose, Concat, Split, DepthToSpace, SpaceToDepth, Trilu
std::vector<OpDef> extent_ops();         // extent.cpp: Slice, Pad, Tile
std::vector<OpDef> resize_ops();         // resize.cpp: Resize
std::vector<OpDef> generator_ops();      // generator.cpp: Constant, ConstantOfShape, Range, EyeLike
std::vector<OpDef> indexing_ops();       // indexing.cpp: Gather, GatherND, GatherElements, …
std::vector<OpDef> reduction_ops();      // reduction.cpp: Reduce*, CumSum, ArgMax, …
std::vector<OpDef> normalization_ops();  // normalization.cpp: Softmax, LayerNormalization, RMSNormalization, …
std::vector<OpDef> matmul_ops();         // matmul.cpp: MatMul, Gemm
std::vector<OpDef> einsum_ops();         // einsum.cpp: Einsum
std::vector<OpDef> convolution_ops();    // convolution.cpp: Conv, ConvTranspose
std::vector<OpDef> pooling_ops();        // pooling.cpp: MaxPool, AveragePool, GlobalAveragePool, …
std::vector<OpDef> recurrent_ops();      // recurrent.cpp: RNN, GRU, LSTM
std::vector<OpDef> attention_ops();      // attention.cpp: Attention, RotaryEmbedding
std::vector<OpDef> experts_ops();        // experts.cpp: mixtures of experts
std::vector<OpDef> flow_ops();           // flow.cpp: where branches and loops begin and end
std::vector<OpDef> quantization_ops();   // quantization.cpp: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear
std::vector<OpDef> quantized_ops();      // quantized_product.cpp: MatMulInteger, MatMulNBits
std::vector<OpDef> interpolation_ops();  // interpolation.cpp: GridSample, RoiAlign, DeformConv
std::vector<OpDef> square_matrix_ops();  // square_matrix.cpp: Det, Inverse
std::vector<OpDef> random_ops();         // random.cpp: keyed Dropout, RandomUniform, RandomNormal
std::vector<OpDef> cache_ops();          // cache.cpp: TensorScatter

}  // namespace tessera::ops

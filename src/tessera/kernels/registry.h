#pragma once

#include "tessera/kernels/kernel.h"

/// The one visible list of kernel families: each file of cpu/ provides its entries through one function named here.
namespace tessera::kernels {

std::vector<KernelEntry> elementwise_kernels();  // cpu/elementwise.cpp: unary, binary, comparisons, Where, Clip, Cast
std::vector<KernelEntry>
movement_kernels();  // cpu/movement.cpp: Reshape-like views, Transpose, Concat, Slice, Expand, …
std::vector<KernelEntry> indexing_kernels();   // cpu/indexing.cpp: Gather, GatherND, GatherElements, Scatter, TopK, …
std::vector<KernelEntry> reduction_kernels();  // cpu/reduction.cpp: Reduce*, ArgMax, CumSum
std::vector<KernelEntry>
normalization_kernels();                    // cpu/normalization.cpp: Softmax, LayerNormalization, RMSNormalization, …
std::vector<KernelEntry> matmul_kernels();  // cpu/matmul.cpp: MatMul, Gemm, weight packing
std::vector<KernelEntry> convolution_kernels();  // cpu/convolution.cpp: Conv, pooling, BatchNormalization
std::vector<KernelEntry> recurrent_kernels();    // cpu/recurrent.cpp: RNN, GRU, LSTM
std::vector<KernelEntry> attention_kernels();    // cpu/attention.cpp: Attention, RotaryEmbedding

}  // namespace tessera::kernels

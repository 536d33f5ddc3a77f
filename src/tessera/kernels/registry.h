#pragma once

#include "tessera/kernels/kernel.h"

/// The one visible list of kernel families, those of ops/registry.h: each file of cpu/ provides its entries through one
/// function named here.
namespace tessera::kernels {

std::vector<KernelEntry> elementwise_kernels();  // cpu/elementwise.cpp: unary, binary, comparisons, Where, Clip, Cast
std::vector<KernelEntry> shape_kernels();        // cpu/shape.cpp: Reshape and other views, Expand, Shape, Size
std::vector<KernelEntry> movement_kernels();     // cpu/movement.cpp: Transpose, Concat, Split, DepthToSpace, Trilu, …
std::vector<KernelEntry> extent_kernels();       // cpu/extent.cpp: Slice, Pad, Tile
std::vector<KernelEntry> resize_kernels();       // cpu/resize.cpp: Resize
std::vector<KernelEntry> generator_kernels();    // cpu/generator.cpp: Range, ConstantOfShape, EyeLike
std::vector<KernelEntry> indexing_kernels();     // cpu/indexing.cpp: Gather, GatherND, GatherElements, Scatter, …
std::vector<KernelEntry> reduction_kernels();    // cpu/reduction.cpp: Reduce*, ArgMax, CumSum
std::vector<KernelEntry> normalization_kernels();  // cpu/normalization.cpp: Softmax, LayerNormalization, …
std::vector<KernelEntry> matmul_kernels();         // cpu/matmul.cpp: MatMul, Gemm, weight packing
std::vector<KernelEntry> einsum_kernels();         // cpu/einsum.cpp: Einsum
std::vector<KernelEntry> convolution_kernels();    // cpu/convolution.cpp: Conv, ConvTranspose
std::vector<KernelEntry> pooling_kernels();        // cpu/pooling.cpp: MaxPool, AveragePool, GlobalAveragePool, …
std::vector<KernelEntry> recurrent_kernels();      // cpu/recurrent.cpp: RNN, GRU, LSTM
std::vector<KernelEntry> attention_kernels();      // cpu/attention.cpp: Attention, RotaryEmbedding
std::vector<KernelEntry> experts_kernels();        // cpu/experts.cpp: mixtures of experts
std::vector<KernelEntry> flow_kernels();           // cpu/flow.cpp: where branches and loops begin and end
std::vector<KernelEntry> quantization_kernels();   // cpu/quantization.cpp: QuantizeLinear, DequantizeLinear
std::vector<KernelEntry> quantized_kernels();      // cpu/quantized_product.cpp: MatMulInteger, MatMulNBits
std::vector<KernelEntry> integer_convolution_kernels();  // cpu/integer_convolution.cpp: ConvInteger
std::vector<KernelEntry> grid_sample_kernels();          // cpu/grid_sample.cpp: GridSample
std::vector<KernelEntry> roi_align_kernels();            // cpu/roi_align.cpp: RoiAlign
std::vector<KernelEntry> deform_conv_kernels();          // cpu/deform_conv.cpp: DeformConv
std::vector<KernelEntry> determinant_kernels();          // cpu/determinant.cpp: Det
std::vector<KernelEntry> random_kernels();               // cpu/random.cpp: keyed Dropout, RandomUniform, RandomNormal
std::vector<KernelEntry> cache_kernels();                // cpu/cache.cpp: TensorScatter

}  // namespace tessera::kernels

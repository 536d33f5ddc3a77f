#pragma once

#include "tessera/kernels/kernel.h"

/// The one visible list of kernel families; registry.cpp calls each. A file of cpu/ provides its entries through one
/// function named here.
namespace tessera::kernels {

std::vector<KernelEntry>
elementwise_kernels();                     // elementwise/elementwise.cpp: unary, binary, comparisons, Where, Clip, Cast
std::vector<KernelEntry> shape_kernels();  // move/shape.cpp: Reshape and other views, Expand, Shape, Size
std::vector<KernelEntry> movement_kernels();   // move/movement.cpp: Transpose, Concat, Split, DepthToSpace, Trilu, …
std::vector<KernelEntry> extent_kernels();     // move/extent.cpp: Slice, Pad, Tile
std::vector<KernelEntry> resize_kernels();     // image/resize.cpp: Resize
std::vector<KernelEntry> generator_kernels();  // move/generator.cpp: Range, ConstantOfShape, EyeLike
std::vector<KernelEntry> indexing_kernels();   // move/indexing.cpp: Gather, GatherND, GatherElements, Scatter, …
std::vector<KernelEntry> reduction_kernels();  // reduce/reduction.cpp: Reduce*, ArgMax, CumSum
std::vector<KernelEntry> normalization_kernels();  // reduce/normalization.cpp: LayerNormalization, RMSNormalization
std::vector<KernelEntry> softmax_kernels();        // reduce/softmax.cpp: Softmax, LogSoftmax, …
std::vector<KernelEntry> batch_normalization_kernels();  // reduce/batch_normalization.cpp: BatchNormalization
std::vector<KernelEntry>
channel_normalization_kernels();  // reduce/channel_normalization.cpp: InstanceNormalization, GroupNormalization, …
std::vector<KernelEntry> matmul_kernels();         // product/matmul.cpp: MatMul, Gemm, weight packing
std::vector<KernelEntry> einsum_kernels();         // product/einsum.cpp: Einsum
std::vector<KernelEntry> square_matrix_kernels();  // product/square_matrix.cpp: Det, Inverse
std::vector<KernelEntry> convolution_kernels();    // image/convolution.cpp: Conv, ConvTranspose
std::vector<KernelEntry> pooling_kernels();        // image/pooling.cpp: MaxPool, AveragePool, GlobalAveragePool, …
std::vector<KernelEntry> grid_sample_kernels();    // image/grid_sample.cpp: GridSample
std::vector<KernelEntry> roi_align_kernels();      // image/roi_align.cpp: RoiAlign
std::vector<KernelEntry> deform_conv_kernels();    // image/deform_conv.cpp: DeformConv
std::vector<KernelEntry> recurrent_kernels();      // recurrent/recurrent.cpp: RNN, GRU, LSTM
std::vector<KernelEntry> attention_kernels();      // attention/attention.cpp: Attention
std::vector<KernelEntry> attention_gradient_kernels();   // attention/gradient.cpp: AttentionGradient
std::vector<KernelEntry> rotary_kernels();               // attention/rotary.cpp: RotaryEmbedding
std::vector<KernelEntry> cache_kernels();                // attention/cache.cpp: TensorScatter
std::vector<KernelEntry> experts_kernels();              // experts/experts.cpp: mixtures of experts
std::vector<KernelEntry> flow_kernels();                 // move/flow.cpp: where branches and loops begin and end
std::vector<KernelEntry> quantization_kernels();         // quantized/quantization.cpp: QuantizeLinear, DequantizeLinear
std::vector<KernelEntry> quantized_kernels();            // quantized/quantized_product.cpp: MatMulInteger, MatMulNBits
std::vector<KernelEntry> integer_convolution_kernels();  // quantized/integer_convolution.cpp: ConvInteger
std::vector<KernelEntry> random_kernels();  // random/random.cpp: keyed Dropout, RandomUniform, RandomNormal

}  // namespace tessera::kernels

#pragma once

#include <string_view>
#include <vector>

#include "tessera/ops/example.h"

/// The examples that operators' records name (OpDef::examples), of families that have many.
namespace tessera::ops {

// elementwise.cpp
std::vector<Example> unary_examples(std::string_view type);
std::vector<Example> binary_examples(std::string_view type);
std::vector<Example> variadic_examples(std::string_view type);
std::vector<Example> clip_examples(std::string_view type);
std::vector<Example> where_examples(std::string_view type);
std::vector<Example> cast_examples(std::string_view type);
std::vector<Example> bit_cast_examples(std::string_view type);
std::vector<Example> cast_like_examples(std::string_view type);
std::vector<Example> inference_dropout_examples(std::string_view type);

// shape.cpp
std::vector<Example> reshape_examples(std::string_view type);
std::vector<Example> flatten_examples(std::string_view type);
std::vector<Example> squeeze_examples(std::string_view type);
std::vector<Example> unsqueeze_examples(std::string_view type);
std::vector<Example> expand_examples(std::string_view type);
std::vector<Example> shape_examples(std::string_view type);
std::vector<Example> size_examples(std::string_view type);

// movement.cpp
std::vector<Example> transpose_examples(std::string_view type);
std::vector<Example> concat_examples(std::string_view type);
std::vector<Example> split_examples(std::string_view type);
std::vector<Example> block_examples(std::string_view type);  // DepthToSpace, SpaceToDepth
std::vector<Example> trilu_examples(std::string_view type);

// extent.cpp
std::vector<Example> slice_examples(std::string_view type);
std::vector<Example> pad_examples(std::string_view type);
std::vector<Example> tile_examples(std::string_view type);

// resize.cpp
std::vector<Example> resize_examples(std::string_view type);
std::vector<Example> resize_part_examples(std::string_view type);  // of our own domain

// generator.cpp
std::vector<Example> constant_examples(std::string_view type);
std::vector<Example> constant_of_shape_examples(std::string_view type);
std::vector<Example> range_examples(std::string_view type);
std::vector<Example> eye_like_examples(std::string_view type);

// indexing.cpp
std::vector<Example> gather_examples(std::string_view type);
std::vector<Example> gather_nd_examples(std::string_view type);
std::vector<Example> gather_elements_examples(std::string_view type);
std::vector<Example> scatter_nd_examples(std::string_view type);
std::vector<Example> scatter_elements_examples(std::string_view type);
std::vector<Example> one_hot_examples(std::string_view type);
std::vector<Example> top_k_examples(std::string_view type);

// cache.cpp
std::vector<Example> tensor_scatter_examples(std::string_view type);
std::vector<Example> tensor_scatter_shard_examples(std::string_view type);

// quantization.cpp
std::vector<Example> dynamic_quantize_examples(std::string_view type);
std::vector<Example> quantize_examples(std::string_view type);
std::vector<Example> dequantize_examples(std::string_view type);

// convolution.cpp
std::vector<Example> convolution_examples(std::string_view type);
std::vector<Example> integer_convolution_examples(std::string_view type);

// pooling.cpp
std::vector<Example> pooling_examples(std::string_view type);

// product.cpp
std::vector<Example> matmul_examples(std::string_view type);
std::vector<Example> wide_matmul_examples(std::string_view type);  // of our own domain
std::vector<Example> gemm_examples(std::string_view type);
std::vector<Example> wide_gemm_examples(std::string_view type);  // of our own domain
std::vector<Example> einsum_examples(std::string_view type);

// quantized.cpp
std::vector<Example> matmul_integer_examples(std::string_view type);
std::vector<Example> matmul_nbits_examples(std::string_view type);
std::vector<Example> matmul_blocks_examples(std::string_view type);

// attention.cpp
std::vector<Example> attention_examples(std::string_view type);
std::vector<Example> attention_shard_examples(std::string_view type);
std::vector<Example> attention_gradient_examples(std::string_view type);
std::vector<Example> rotary_examples(std::string_view type);

// experts.cpp
std::vector<Example> experts_examples(std::string_view type);
std::vector<Example> experts_shard_examples(std::string_view type);

// recurrent.cpp
std::vector<Example> recurrent_examples(std::string_view type);

}  // namespace tessera::ops

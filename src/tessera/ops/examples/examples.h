#pragma once

#include <string_view>
#include <vector>

#include "tessera/ops/example.h"

/// The examples that operators' records name (OpDef::examples), of families that have many.
namespace tessera::ops {

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

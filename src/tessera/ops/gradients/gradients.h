#pragma once

#include <string_view>

#include "tessera/ops/gradients/gradient.h"
#include "tessera/ops/op.h"

/// The gradients that operators' records name (OpDef::gradient), by family as the operators are.
namespace tessera::ops {

/// Gives nothing, which means 0: for functions that are constant wherever they have a derivative.
void no_gradient(GradientBuilder& b);

/// Null for an operator that has none, because its results are not real numbers.
GradientFn elementwise_gradient(std::string_view type);
void cast_gradient(GradientBuilder& b);
void dropout_gradient(GradientBuilder& b);        // of one that drops nothing
void keyed_dropout_gradient(GradientBuilder& b);  // of random.h's

void reshape_gradient(GradientBuilder& b);  // of Reshape, Flatten, Squeeze, Unsqueeze
void expand_gradient(GradientBuilder& b);
void transpose_gradient(GradientBuilder& b);
void concat_gradient(GradientBuilder& b);
void split_gradient(GradientBuilder& b);
void blocks_gradient(GradientBuilder& b);  // of DepthToSpace, SpaceToDepth
void trilu_gradient(GradientBuilder& b);
void slice_gradient(GradientBuilder& b);
void pad_gradient(GradientBuilder& b);
void tile_gradient(GradientBuilder& b);
void resize_gradient(GradientBuilder& b);

void gather_gradient(GradientBuilder& b);
void gather_nd_gradient(GradientBuilder& b);
void gather_elements_gradient(GradientBuilder& b);
void scatter_nd_gradient(GradientBuilder& b);
void scatter_elements_gradient(GradientBuilder& b);
void top_k_gradient(GradientBuilder& b);

/// Null for ArgMax and ArgMin.
GradientFn reduction_gradient(std::string_view type);
void cumulative_sum_gradient(GradientBuilder& b);

void softmax_gradient(GradientBuilder& b);
void log_softmax_gradient(GradientBuilder& b);
void lp_normalization_gradient(GradientBuilder& b);
void layer_normalization_gradient(GradientBuilder& b);
void rms_normalization_gradient(GradientBuilder& b);
void batch_normalization_gradient(GradientBuilder& b);
void group_normalization_gradient(GradientBuilder& b);  // of InstanceNormalization, GroupNormalization
void mean_variance_gradient(GradientBuilder& b);

void matmul_gradient(GradientBuilder& b);
void gemm_gradient(GradientBuilder& b);
void einsum_gradient(GradientBuilder& b);

void convolution_gradient(GradientBuilder& b);  // of Conv, ConvTranspose
GradientFn pooling_gradient(std::string_view type);

void attention_gradient(GradientBuilder& b);
void rotary_gradient(GradientBuilder& b);

void experts_gradient(GradientBuilder& b);

void recurrent_gradient(GradientBuilder& b);  // of RNN, GRU, LSTM

}  // namespace tessera::ops

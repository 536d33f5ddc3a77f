#pragma once

#include <functional>

#include "tessera/ir/graph.h"

/// The passes of pipeline.cpp, one per file. Those after `fold` rely on types, and keep every result typed.
namespace tessera::rewrite {

/// What nodes that came out of functions' bodies say of themselves from inline_functions to upgrade: the version of
/// ONNX's own operators that their function imports, as an int attribute.
inline constexpr std::string_view kOpsetStamp = "tessera.opset";

/// Calls of model-local functions become the functions' bodies, except of operators that we know ourselves. Comes
/// first: before it, attributes may be references whose values only the calls know.
void inline_functions(OnnxModel& model);
/// Every operator in its newest form, each from the version of its stamp, else the model's.
void upgrade(OnnxModel& model);
/// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, spelt out.
void lower_losses(OnnxModel& model);
/// Infers all types; values whose elements are known become constants or expressions: no Shape is left.
void fold(OnnxModel& model);
/// The same of a model with operators that ops/ does not know: `infer_other` sets the types of their results, and may
/// put nodes before them or make them others.
void fold(OnnxModel& model, const std::function<void(Node&)>& infer_other);
/// Einsums become matrix products between changes of shape; what is no product stays.
void lower_einsum(OnnxModel& model);
/// Local simplifications to a fixpoint: one spelling for what has several (see canonicalize.cpp's table).
void canonicalize(OnnxModel& model);
/// Nodes that compute the same from the same become one.
void merge_equal(OnnxModel& model);
/// Index arithmetic (arange, slices, comparisons, gathers of masks) becomes constants, ranges and reshapes.
void raise_indexing(OnnxModel& model);
/// Extents that must be equal get one expression: min(128, s) beside s becomes s.
void unify_extents(OnnxModel& model);
/// One projection to queries, keys and values of unequal widths becomes one for each.
void separate_heads(OnnxModel& model);
/// Spelt-out LayerNormalization and RMSNormalization.
void raise_normalization(OnnxModel& model);
/// Spelt-out Gelu (erf and tanh forms) and Swish.
void raise_activation(OnnxModel& model);
/// x·cos + rotate_half(x)·sin → RotaryEmbedding.
void raise_rotary(OnnxModel& model);
/// MatMul, scale, mask, Softmax, MatMul → Attention; masks and repeated key/value heads of Attention simplified.
void raise_attention(OnnxModel& model);

}  // namespace tessera::rewrite

#pragma once

#include <functional>

#include "tessera/ir/graph.h"

/// The passes of pipeline.cpp, one per file. Those after `fold` rely on types, and keep every result typed.
namespace tessera::rewrite {

/// From inline_functions to upgrade, a node that came out of a function's body has this int attribute: the version of
/// ONNX's own operators that the function imports.
inline constexpr std::string_view kOpsetStamp = "tessera.opset";

/// From inline_functions to fold, a node that came out of a function's body has this string attribute: the label of
/// the call in the graph, for errors.
inline constexpr std::string_view kCallStamp = "tessera.call";
/// Calls `step`, which handles the node. If the node came out of a function, an error of `step` begins with the call.
void naming_call(const Node& node, const std::function<void()>& step);
/// Removes both stamps from the graph's nodes, for callers that inline functions without upgrade() and fold().
void drop_stamps(Graph& graph);

/// An Identity in a body of control flow may have this string attribute: the name that annotations use for its result,
/// which gets its own name only when the body is opened. The node is removed unless an annotation needs it.
inline constexpr std::string_view kLabel = "tessera.label";
/// The prefix of such names.
inline constexpr std::string_view kLabelPrefix = "tessera.label:";
/// The label of the node that makes the value; null: none.
const std::string* label_of(const Value& value);
std::vector<Value*> labelled_results(const Graph& graph);

/// In the name of a stack of parameters, this replaces the part in which their names differ.
inline constexpr std::string_view kStackMark = "#";

/// Replaces calls of functions (the model's and the known ones of lower/functions.h) by the functions' bodies, except
/// for operators that Tessera has. Comes first, because until then attributes may be references to values that only the
/// calls have.
void inline_functions(OnnxModel& model);
/// Whether the function is an operator that Tessera has, whatever its body: its calls stay.
bool is_our_own(const Function& function);
/// The function whose body replaces the node in inline_functions(); null if there is none.
const Function* inlined_function(const OnnxModel& model, const Node& node);
/// Converts every operator to its newest form, from the version in its stamp, else the model's.
void upgrade(OnnxModel& model);
/// Decomposes NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.
void lower_losses(OnnxModel& model);
/// Gives Dropouts that may drop elements the key by which they draw random numbers (ops/random.h).
void key_dropout(OnnxModel& model);
/// Replaces a node of an ONNX operator that draws random numbers by nodes of ops/random.h; false for other nodes. Its
/// operands must have types; its results get theirs.
bool lower_random(Graph& graph, Node& node);
/// Infers all types, lowers random operators, and replaces values whose elements are known by constants or expressions,
/// so that no Shape is left.
void fold(OnnxModel& model);
/// The same for a model with operators that ops/ does not know: `infer_other` sets the types of their results, and may
/// put nodes before them or turn them into other operators.
void fold(OnnxModel& model, const std::function<void(Node&)>& infer_other);
/// Turns Einsums into matrix products between changes of shape; an Einsum that is not a product stays.
void lower_einsum(OnnxModel& model);

/// Decomposes BatchNormalizations in training form, which use the statistics of the batch.
void lower_batch_normalization(OnnxModel& model);
/// Applies local simplifications to a fixpoint: one spelling for each construct that has several (see
/// canonicalize.cpp's table).
void canonicalize(OnnxModel& model);
/// Merges nodes that compute the same from the same operands.
void merge_equal(OnnxModel& model);
/// Turns index arithmetic (arange, slices, comparisons, gathers of masks) into constants, ranges and reshapes.
void raise_indexing(OnnxModel& model);
/// Gives extents that must be equal one expression: min(128, s) beside s becomes s.
void unify_extents(OnnxModel& model);
/// Splits one projection to queries, keys and values of unequal widths into one projection for each.
void separate_heads(OnnxModel& model);
/// Raises decompositions of LayerNormalization and RMSNormalization.
void raise_normalization(OnnxModel& model);
/// Raises decompositions of Gelu (erf and tanh forms) and Swish.
void raise_activation(OnnxModel& model);
/// Products of dequantized operands → products of integers, or of blocks that are unpacked inside.
void raise_quantized(OnnxModel& model);
/// Lets each expert of a loop over experts compute all tokens, if the exporter wrote NonZero to find those that chose
/// it. Works on models without types, as after `upgrade`; others stay as they are.
void spread_routed_rows(OnnxModel& model);
/// Raises mixtures of experts to Experts (ir/experts.h): those that gather matrices for each choice; those in which
/// every expert computes all tokens, as a batch of products or as a sum over experts with parameters of their own.
void raise_experts(OnnxModel& model);
void raise_expert_sums(OnnxModel& model);
/// x·cos + rotate_half(x)·sin → RotaryEmbedding.
void raise_rotary(OnnxModel& model);
/// Converts a graph to what other engines know: replaces Tessera's own operators by their bodies (OpDef::body), and
/// expands operands that broadcast further than ONNX allows. Not a pass of pipeline.cpp.
void spell_out(Graph& graph);
/// MatMul, scale, mask, Softmax, MatMul → Attention; also simplifies Attention's masks and repeated key/value heads.
void raise_attention(OnnxModel& model);

}  // namespace tessera::rewrite

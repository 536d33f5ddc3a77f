#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "tessera/ops/library/node_builder.h"

/// Operators that rewriting replaces by others once it knows their operands' types. Operators that are functions of
/// others are ONNX text instead (functions.h). These are C++ because a function's text cannot
/// - compute an attribute: LRN's window, the group of CausalConvWithState;
/// - choose a permutation or a number of nodes by rank: ReverseSequence, FusedMatMul;
/// - compute a table while compiling: AffineGrid, windows and transforms of signals;
/// - test types or strings: activations, modes;
/// - let an operand before the last be missing: zero points, segments of embeddings.
namespace tessera::rewrite {

/// The input of a lowering.
struct Lowerer {
  const Node& node;
  ops::NodeBuilder& b;  ///< appends before the node
  /// Infers the results of a node with regions, once its results have uses.
  const std::function<void(Node*)>& open;

  Value* in(size_t index) const { return node.input(index); }
  bool has(size_t index) const { return node.input(index) != nullptr; }
  bool wants(size_t result) const { return node.output(result) != nullptr; }
};

struct Lowering {
  std::string_view op_type;
  size_t operands;  ///< the first ones, which must be present
  /// The results, as many as the node has; null for absent ones.
  std::vector<Value*> (*lower)(Lowerer& l);
  /// Operands whose elements must be known (OpDef::values).
  std::vector<size_t> values = {};
  /// Null: all nodes of the operator.
  bool (*applies)(const Node& node) = nullptr;
  std::string_view domain = "";
};

/// Quantizes x to uint8 by the range of its elements, 0 included. Returns the codes, their scale and their zero point.
std::vector<Value*> quantize_dynamically(ops::NodeBuilder& b, Value* x);
/// MatMulInteger of operands of any rank, with zero points in any form of the standard; null: no zero points. Errors
/// name `node`.
Value* integer_product(ops::NodeBuilder& b, const Node& node, Value* left, Value* left_zero, Value* right,
                       Value* right_zero);

/// Sequences [n, t, …] with the first `lengths` elements of each in reverse order; the others stay.
Value* turned_rows(ops::NodeBuilder& b, Value* x, Value* lengths);

/// A matrix of codes: (codes - zero) * scale. `zero` may be null; both may be lists along a right matrix' columns.
struct Codes {
  Value *codes, *scale, *zero;
};
/// The product of integers times both scales, and `bias`, if any. The left matrix has one scale and one zero point.
/// Computed in float32 until the bias is added, since sums may exceed the range of 16 bits; the result has the left
/// scale's type.
Value* scaled_product(ops::NodeBuilder& b, const Node& node, const Codes& left, const Codes& right, Value* bias);

std::vector<Lowering> attention_lowerings();     // attention.cpp: Attention with windows or with its scores
std::vector<Lowering> experts_lowerings();       // experts.cpp: com.microsoft's MoE and QMoE
std::vector<Lowering> fused_lowerings();         // fused.cpp: FusedConv, FusedGemm, MatMulIntegerToFloat
std::vector<Lowering> image_lowerings();         // image.cpp: AffineGrid, Col2Im, MaxUnpool, LRN, …
std::vector<Lowering> list_lowerings();          // regions/lower_lists.cpp: sequences of tensors
std::vector<Lowering> microsoft_lowerings();     // microsoft.cpp: what ONNX Runtime's optimizers write
std::vector<Lowering> qlinear_lowerings();       // qlinear.cpp: what ONNX Runtime's static quantizer writes
std::vector<Lowering> quantization_lowerings();  // quantization.cpp: MatMulInteger, MatMulNBits, QLinearMatMul, …
std::vector<Lowering> quantizer_lowerings();     // quantizer.cpp: what its dynamic and 4-bit quantizers write
std::vector<Lowering> sequence_lowerings();      // sequence.cpp: CausalConvWithState, LinearAttention, …
std::vector<Lowering> signal_lowerings();        // signal.cpp: DFT, STFT, windows, MelWeightMatrix

std::vector<const Lowering*> all_lowerings();
/// The one that applies to the node; null if none does.
const Lowering* lowering_of(const Node& node);
/// Lowers the node and replaces its results; false if no lowering applies. `open` as in Lowerer.
bool lower_operator(Graph& graph, Node* node, const std::function<void(Node*)>& open);
/// Whether the operator, lowered or not, needs that operand's elements before it is compiled.
bool needs_value(const Node& node, size_t operand);

}  // namespace tessera::rewrite

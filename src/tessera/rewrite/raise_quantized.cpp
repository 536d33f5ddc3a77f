#include <algorithm>
#include <limits>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/ops/node_builder.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

//   MatMul(DequantizeLinear(x, s, z), DequantizeLinear(w, t, u))     x and w of 8 bits
//   → Cast(MatMulInteger(x, w, z, u)) · (s·t)
//
//   MatMul(x, DequantizeLinear(w, s, z))                             w of 8 or 4 bits in blocks of rows
//   → MatMulBlocks(x, w, s, z)
//
// The first is the product of the same numbers, with sums that do not round; they must fit int32. One scale belongs to
// all of x, and one to all of w or to each of its columns. A Gemm is a MatMul and an addition.
namespace tessera::rewrite {
namespace {

/// What a DequantizeLinear made of codes.
struct Dequantized {
  Value* codes = nullptr;
  Value* scale = nullptr;
  Value* zero = nullptr;  ///< null: none
  int64_t axis = 1, block = 0;

  bool is_list() const { return scale->rank() == 1 && !scale->shape()[0].is(1); }
  bool in_bytes() const { return codes->dtype() == DType::uint8 || codes->dtype() == DType::int8; }
};

std::optional<Dequantized> dequantized(const Value* value) {
  const Node* node = made_by(value, "DequantizeLinear");
  if (!node || !node->domain.empty()) return std::nullopt;
  Dequantized made{.codes = node->input(0), .scale = node->input(1), .zero = node->input(2)};
  made.block = node->get_int("block_size", 0);
  if (made.codes->rank() > 0 && (made.block > 0 || made.is_list()))
    made.axis = axis_of(*node, "axis", 1, made.codes->rank());
  return made;
}

/// The operands of a MatMul, or of a Gemm without factors whose left operand is not transposed.
struct MatrixProduct {
  Value *left, *right, *added = nullptr;
  bool turned = false;  ///< the right operand is transposed
};

std::optional<MatrixProduct> product_at(const Node& node) {
  const bool product = node.domain.empty() && (node.is("MatMul") || node.is("Gemm"));
  if (!product || !node.output() || node.output()->dtype() != DType::float32) return std::nullopt;
  if (node.is("MatMul")) return MatrixProduct{node.inputs[0], node.inputs[1]};
  const bool plain = node.get_float("alpha", 1) == 1 && node.get_float("beta", 1) == 1;
  if (!plain || node.get_int("transA", 0) != 0) return std::nullopt;
  return MatrixProduct{node.inputs[0], node.inputs[1], node.input(2), node.get_int("transB", 0) != 0};
}

// Floats do not wrap around, so integers must not either. Codes less their zero points are at most 255 in magnitude.
// The weight's depth is known; that of two activations may be a symbol.
bool sums_fit(const Dequantized& x, const Dequantized& w, bool turned) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max() / (255 * 255);
  const Shape &left = x.codes->shape(), &right = w.codes->shape();
  const auto of_left = left.back().constant(), of_right = right[right.size() - (turned ? 1 : 2)].constant();
  const auto depth = of_right ? of_right : of_left;
  return depth && *depth <= most;
}

bool raise_integers(Graph& graph, Node* node) {
  const auto product = product_at(*node);
  if (!product) return false;
  const auto x = dequantized(product->left), w = dequantized(product->right);
  if (!x || !w || !x->in_bytes() || !w->in_bytes() || x->block > 0 || w->block > 0) return false;
  if (x->codes->rank() < 2 || w->codes->rank() < 2 || x->is_list() || x->scale->rank() > 1 || w->scale->rank() > 1)
    return false;
  const auto columns = static_cast<int64_t>(w->codes->rank()) - (product->turned ? 2 : 1);
  if (w->is_list() && w->axis != columns) return false;
  if (x->scale->dtype() != DType::float32 || w->scale->dtype() != DType::float32) return false;
  if (!sums_fit(*x, *w, product->turned)) return false;

  ops::NodeBuilder b(graph, node->outputs[0]->name, node);
  const auto scalar = [&](Value* value) { return value && value->rank() == 1 ? b.reshape(value, {}) : value; };
  const auto beside_columns = [&](Value* value) { return w->is_list() ? value : scalar(value); };
  Value* codes = product->turned ? b.turn(w->codes) : w->codes;
  Value* sums = b.emit("MatMulInteger", {x->codes, codes, scalar(x->zero), beside_columns(w->zero)});
  Value* y = b.mul(b.cast(sums, DType::float32), b.mul(scalar(x->scale), beside_columns(w->scale)));
  if (product->added) y = b.add(y, product->added);
  return replace(graph, node->outputs[0], y);
}

bool raise_blocks(Graph& graph, Node* node) {
  if (!node->is("MatMul") || !node->domain.empty() || !node->output()) return false;
  const auto w = dequantized(node->inputs[1]);
  if (!w || w->axis != 0 || w->codes->rank() != 2 || w->codes->kind != ValueKind::state) return false;
  if (w->block < 16 || (w->block & (w->block - 1)) != 0) return false;
  const DType codes = w->codes->dtype();
  if (!w->in_bytes() && codes != DType::uint4 && codes != DType::int4) return false;
  // MatMulBlocks wants the zero points of codes without a sign.
  if (codes != DType::int8 && codes != DType::int4 && !w->zero) return false;
  if (w->scale->dtype() != node->inputs[0]->dtype() || node->inputs[0]->rank() < 1) return false;
  ops::NodeBuilder b(graph, node->outputs[0]->name, node);
  Value* y = b.emit_all("tessera", "MatMulBlocks", {node->inputs[0], w->codes, w->scale, w->zero},
                        {attribute("block_size", w->block)}, 1)[0];
  return replace(graph, node->outputs[0], y);
}

}  // namespace

void raise_quantized(OnnxModel& model) {
  Graph& graph = *model.graph;
  for (Node* node : nodes_of(graph))
    if (!raise_integers(graph, node)) raise_blocks(graph, node);
  graph.erase_dead();
}

}  // namespace tessera::rewrite

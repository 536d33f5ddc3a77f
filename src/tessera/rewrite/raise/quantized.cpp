#include <algorithm>
#include <limits>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/node_builder.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

//   MatMul(DequantizeLinear(x, s, z), DequantizeLinear(w, t, u))     x and w of 8 bits
//   → Cast(MatMulInteger(x, w, z, u)) · (s·t)
//
//   MatMul(x, DequantizeLinear(w, s, z))                             w of 8 or 4 bits, perhaps in blocks of rows
//   → MatMulBlocks(x, w, s, z)
//
// The first is the product of the same numbers, with sums that do not round; they must fit int32. One scale belongs to
// all of x, and one to all of w or to each of its columns. In the second, w may be transposed. A Gemm is a MatMul and
// an addition.
//
//   Conv(DequantizeLinear(x, s, z), DequantizeLinear(w, t, u))       the same, with one t for w or for each channel
//   → Cast(ConvInteger(x, w, z, u)) · (s·t)
//
//   MaxPool(DequantizeLinear(x, s, z))                               a movement or a maximum, s > 0
//   → DequantizeLinear(MaxPool(x), s, z)
//
//   QuantizeLinear(DequantizeLinear(x, s, z), s, z)
//   → x
//
//   Gather(DequantizeLinear(w, s, z), i)                             w of integers, lines of which fill whole bytes
//   → DequantizeLinear(Gather(w, i), s, z)
//
// So a table never becomes floats as a whole; s and z are gathered, too, if they have an entry for each row.
namespace tessera::rewrite {
namespace {

/// A DequantizeLinear of codes, with its result in its scale's type.
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
  if (value->dtype() != made.scale->dtype()) return std::nullopt;
  made.block = node->get_int("block_size", 0);
  if (made.codes->rank() > 0 && (made.block > 0 || made.is_list()))
    made.axis = axis_of(*node, "axis", 1, made.codes->rank());
  return made;
}

/// A node's attributes but for its axis.
std::vector<Attribute> attributes_without_axis(const Node& node) {
  std::vector<Attribute> attributes = node.attributes;
  std::erase_if(attributes, [](const Attribute& attribute) { return attribute.name == "axis"; });
  return attributes;
}

/// The operands of a MatMul, or of a Gemm without factors whose left operand is not transposed.
struct MatrixProduct {
  Value *left, *right, *added = nullptr;
  bool turned = false;  ///< the right operand is transposed
};

std::optional<MatrixProduct> product_at(const Node& node, std::initializer_list<DType> dtypes) {
  const bool product = node.domain.empty() && (node.is("MatMul") || node.is("Gemm"));
  if (!product || !node.output()) return std::nullopt;
  if (std::find(dtypes.begin(), dtypes.end(), node.output()->dtype()) == dtypes.end()) return std::nullopt;
  if (node.is("MatMul")) return MatrixProduct{node.inputs[0], node.inputs[1]};
  const bool plain = node.get_float("alpha", 1) == 1 && node.get_float("beta", 1) == 1;
  if (!plain || node.get_int("transA", 0) != 0) return std::nullopt;
  return MatrixProduct{node.inputs[0], node.inputs[1], node.input(2), node.get_int("transB", 0) != 0};
}

// Floats do not wrap around, so integers must not either. Codes less their zero points are at most 255 in magnitude.
bool sums_fit(const std::optional<int64_t>& depth) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max() / (255 * 255);
  return depth && *depth <= most;
}

// The weight's depth is a number; the depth of two activations may be a symbol.
bool sums_fit(const Dequantized& x, const Dequantized& w, bool turned) {
  const Shape &left = x.codes->shape(), &right = w.codes->shape();
  const auto of_left = left.back().constant(), of_right = right[right.size() - (turned ? 1 : 2)].constant();
  return sums_fit(of_right ? of_right : of_left);
}

/// Codes with one scale for all of them.
std::optional<Dequantized> with_one_scale(const Value* value) {
  const auto x = dequantized(value);
  const bool fits = x && x->in_bytes() && x->block == 0 && x->scale->rank() <= 1 && product(x->scale->shape()).is(1);
  return fits && x->scale->dtype() == DType::float32 ? x : std::nullopt;
}

bool raise_integers(Graph& graph, Node* node) {
  const auto product = product_at(*node, {DType::float32});
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
  const auto scalar = [&](Value* value) { return b.as_number(value); };
  const auto beside_columns = [&](Value* value) { return w->is_list() ? value : scalar(value); };
  Value* codes = product->turned ? b.turn(w->codes) : w->codes;
  Value* sums = b.emit("MatMulInteger", {x->codes, codes, scalar(x->zero), beside_columns(w->zero)});
  Value* y = b.mul(b.cast(sums, DType::float32), b.mul(scalar(x->scale), beside_columns(w->scale)));
  if (product->added) y = b.add(y, product->added);
  return replace(graph, node->outputs[0], y);
}

bool raise_convolution(Graph& graph, Node* node) {
  if (!node->is("Conv") || !node->domain.empty() || node->outputs[0]->dtype() != DType::float32) return false;
  const auto x = with_one_scale(node->inputs[0]), w = dequantized(node->inputs[1]);
  if (!x || !w || !w->in_bytes() || w->block > 0 || w->scale->rank() > 1 || w->scale->dtype() != DType::float32)
    return false;
  if (w->is_list() && w->axis != 0) return false;
  const Shape& weight = w->codes->shape();
  if (!sums_fit(product(Shape(weight.begin() + 1, weight.end())).constant())) return false;

  ops::NodeBuilder b(graph, node->outputs[0]->name, node);
  Shape channels(weight.size() - 1, Expr(1));  // lists are aligned at the right
  channels[0] = weight[0];
  Value* zero = w->is_list() ? w->zero : b.as_number(w->zero);
  Value* sums = b.emit("ConvInteger", {x->codes, w->codes, b.as_number(x->zero), zero}, node->attributes);
  Value* scale = b.mul(b.as_number(x->scale), w->is_list() ? w->scale : b.as_number(w->scale));
  Value* y = b.mul(b.cast(sums, DType::float32), w->is_list() ? b.reshape(scale, channels) : scale);
  if (node->input(2)) y = b.add(y, b.reshape(node->input(2), channels));
  return replace(graph, node->outputs[0], y);
}

/// The matrix before a Transpose, if there is one; then `turned` changes.
Value* unturned(Value* value, bool& turned) {
  const Node* transpose = made_by(value, "Transpose");
  if (!transpose || value->rank() != 2 || permutation_of(*transpose) != std::vector<int64_t>{1, 0}) return value;
  turned = !turned;
  return transpose->inputs[0];
}

/// The weight as MatMulBlocks takes it; `turned`: whether it is transposed.
std::optional<Dequantized> code_matrix(Value* weight, bool& turned) {
  auto w = dequantized(unturned(weight, turned));
  if (!w) return std::nullopt;
  if (w->block == 0 && w->codes->rank() == 2) {
    const bool before = turned;
    w->codes = unturned(w->codes, turned);
    if (before != turned) w->axis = 1 - w->axis;
  }
  if (w->codes->rank() != 2 || w->codes->kind != ValueKind::state) return std::nullopt;
  const DType codes = w->codes->dtype();
  if (!w->in_bytes() && codes != DType::uint4 && codes != DType::int4) return std::nullopt;
  const int64_t rows = turned ? 1 : 0;
  if (w->block > 0 && (w->axis != rows || w->block < 16 || (w->block & (w->block - 1)) != 0)) return std::nullopt;
  if (w->block == 0 && (w->scale->rank() > 1 || (w->is_list() && w->axis == rows))) return std::nullopt;
  return w;
}

bool raise_blocks(Graph& graph, Node* node) {
  const auto product = product_at(*node, {DType::float32, DType::float16, DType::bfloat16});
  if (!product || product->left->rank() < 1) return false;
  bool turned = product->turned;
  auto w = code_matrix(product->right, turned);
  if (!w || w->scale->dtype() != product->left->dtype()) return false;
  // MatMulBlocks needs the zero points of unsigned codes.
  const DType codes = w->codes->dtype();
  const bool has_sign = codes == DType::int8 || codes == DType::int4;
  if (!has_sign && !w->zero && (w->block > 0 || w->is_list() || !w->in_bytes())) return false;
  if (!has_sign && !w->zero) w->zero = graph.constant_scalar(codes, 0);
  ops::NodeBuilder b(graph, node->outputs[0]->name, node);
  std::vector<Attribute> attributes;
  if (w->block > 0) attributes.push_back(attribute("block_size", w->block));
  if (turned) attributes.push_back(attribute("transB", int64_t{1}));
  Value* y =
      b.emit_all("tessera", "MatMulBlocks", {product->left, w->codes, w->scale, w->zero}, std::move(attributes), 1)[0];
  if (product->added) y = b.add(y, product->added);
  return replace(graph, node->outputs[0], y);
}

/// The only element of a scale, if it is known; else 0.
double known_scale(const Value* scale) {
  return scale->is_fixed() ? scalar_of(scale->data).value_or(0) : 0;
}

/// Whether both have the same elements in every run.
bool are_equal(const Value* a, const Value* b) {
  if (a == b) return true;
  if (!a || !b || !a->is_fixed() || !b->is_fixed() || a->dtype() != b->dtype()) return false;
  return a->data.bytes == b->data.bytes && std::equal(a->data.data, a->data.data + a->data.bytes, b->data.data);
}

/// Operators that move floats, or take the largest of them, work on codes with one scale above zero, too.
bool dequantize_later(Graph& graph, Node* node) {
  if (!node->domain.empty() || node->outputs.size() != 1) return false;
  const bool moves = node->is("Transpose") || node->is("Reshape") || node->is("Slice");
  if (!moves && !node->is("MaxPool")) return false;
  const auto x = with_one_scale(node->inputs[0]);
  if (!x || !used_once(graph, node->inputs[0]) || (!moves && !(known_scale(x->scale) > 0))) return false;
  ops::NodeBuilder b(graph, node->outputs[0]->name, node);
  std::vector<Value*> operands = node->inputs;
  operands[0] = x->codes;
  Value* codes = b.emit(node->op_type, std::move(operands), node->attributes);
  return replace(graph, node->outputs[0],
                 b.emit("DequantizeLinear", {codes, b.as_number(x->scale), b.as_number(x->zero)}));
}

/// Codes that become floats and codes again are the same codes, unless the scale is extreme.
bool keep_codes(Graph& graph, Node* node) {
  if (!node->is("QuantizeLinear") || !node->domain.empty()) return false;
  const auto x = with_one_scale(node->inputs[0]);
  if (!x || node->outputs[0]->dtype() != x->codes->dtype() || node->get_int("precision", 0) != 0) return false;
  constexpr double kLeast = 1e-30, kMost = 1e30;
  const double scale = known_scale(x->scale);
  if (scale < kLeast || scale > kMost || !are_equal(x->scale, node->input(1))) return false;
  if (!are_equal(x->zero, node->input(2))) return false;
  return replace(graph, node->outputs[0], x->codes);
}

bool dequantize_gathered(Graph& graph, Node* node) {
  if (!node->is("Gather") || !node->domain.empty()) return false;
  const auto table = dequantized(node->inputs[0]);
  if (!table || is_float(table->codes->dtype()) || table->codes->kind != ValueKind::state) return false;
  const size_t rank = table->codes->rank();
  const int64_t axis = axis_of(*node, "axis", 0, rank);
  const bool has_axis = table->block > 0 || table->is_list(), along = has_axis && table->axis == axis;
  if (along && table->block > 0) return false;
  const bool picks_zeros = table->zero && (along || table->block > 0);
  if (!ops::fills_bytes(*table->codes, axis) || (picks_zeros && !ops::fills_bytes(*table->zero, along ? 0 : axis)))
    return false;
  ops::NodeBuilder b(graph, node->outputs[0]->name, node);
  // A list of scales is along a single dimension.
  const bool flat = along && node->inputs[1]->rank() != 1;
  Value* indices = flat ? b.reshape(node->inputs[1], {product(node->inputs[1]->shape())}) : node->inputs[1];
  const auto gathered = [&](Value* from, int64_t dim) {
    return from ? b.emit("Gather", {from, indices}, {attribute("axis", dim)}) : nullptr;
  };
  const auto beside = [&](Value* list) {
    return along ? gathered(list, 0) : table->block > 0 ? gathered(list, axis) : list;
  };
  std::vector<Attribute> attributes = attributes_without_axis(*made_by(node->inputs[0], "DequantizeLinear"));
  if (has_axis) {
    const int64_t moved = along || table->axis < axis ? 0 : static_cast<int64_t>(indices->rank()) - 1;
    attributes.push_back(attribute("axis", table->axis + moved));
  }
  Value* y = b.emit("DequantizeLinear", {gathered(table->codes, axis), beside(table->scale), beside(table->zero)},
                    std::move(attributes));
  if (flat) y = b.reshape(y, node->outputs[0]->shape());
  return replace(graph, node->outputs[0], y);
}

}  // namespace

void raise_quantized(OnnxModel& model) {
  Graph& graph = *model.graph;
  for (Node* node : nodes_of(graph))
    if (!dequantize_gathered(graph, node) && !dequantize_later(graph, node)) keep_codes(graph, node);
  for (Node* node : nodes_of(graph))
    if (!raise_integers(graph, node) && !raise_convolution(graph, node)) raise_blocks(graph, node);
  graph.erase_dead();
}

}  // namespace tessera::rewrite

#include <algorithm>
#include <numeric>

#include "tessera/ops/library/finite.h"
#include "tessera/rewrite/canonical/rules.h"
#include "tessera/rewrite/edit.h"

namespace tessera::rewrite {
namespace {

Value* scaled(Graph& graph, Value* x, float factor, const Node* before) {
  return factor == 1 ? x : emit(graph, "Mul", {x, graph.constant_scalar(x->dtype(), factor)}, before);
}

/// Turns alpha·A'·B' + beta·C into MatMul (or Gemm with only transB = 1 if B is transposed), Mul and Add: only the
/// plain product may be split along its contraction.
bool split_gemm(Graph& graph, Node* node) {
  float alpha = node->get_float("alpha", 1), beta = node->get_float("beta", 1);
  bool trans_a = node->get_int("transA", 0) != 0, trans_b = node->get_int("transB", 0) != 0;
  Value* c = node->input(2);
  if (beta == 0) c = nullptr;
  if (trans_b && !trans_a && alpha == 1 && !node->input(2)) return false;
  const DType dtype = node->outputs[0]->dtype();
  if ((alpha != 1 || beta != 1) && (!is_float(dtype) || dtype == DType::float16)) return false;
  Value* result = node->outputs[0];
  std::string name = c || alpha != 1 ? result->name + "_product" : result->name;
  Value* a = trans_a ? transposed(graph, node->inputs[0], {1, 0}, node) : node->inputs[0];
  Value* product = trans_b ? emit(graph, "Gemm", {a, node->inputs[1]}, node, {attribute("transB", int64_t{1})}, name)
                           : emit(graph, "MatMul", {a, node->inputs[1]}, node, {}, name);
  product = scaled(graph, product, alpha, node);
  if (c) product = emit(graph, "Add", {product, scaled(graph, c, beta, node)}, node, {}, result->name);
  product->producer->name = node->name;
  product->producer->extra = node->extra;
  return replace(graph, result, product);
}

bool is_unary(const Node& node) {
  return is_elementwise(node) && node.inputs.size() == 1;
}

/// The operand of a [rows, columns] value through which its rows could have another shape: the left operand of a
/// product with a matrix, or the operand that is not the bias; null if there is none.
Value* row_operand(const Node& node) {
  if (!node.domain.empty() || node.outputs.size() != 1 || node.outputs[0]->rank() != 2) return nullptr;
  if (node.is("MatMul") || node.is("Gemm")) {
    bool plain = node.inputs[0]->rank() == 2 && node.inputs[1]->rank() == 2 && !node.input(2) &&
                 node.get_int("transA", 0) == 0 && node.get_float("alpha", 1) == 1;
    return plain ? node.inputs[0] : nullptr;
  }
  if (node.is("Add") || node.is("Mul"))
    for (size_t i : {0, 1})
      if (node.inputs[i]->shape() == node.outputs[0]->shape() && node.inputs[1 - i]->rank() <= 1) return node.inputs[i];
  return is_unary(node) ? node.inputs[0] : nullptr;
}

/// Recomputes `value` [rows, columns] as [leading…, columns].
Value* in_shape(Graph& graph, Value* value, const Shape& leading, const Node* before) {
  if (Node* reshape = made_by(value, "Reshape")) {
    Shape shape = leading;
    shape.push_back(value->shape()[1]);
    return reshaped(graph, reshape->inputs[0], shape, before);
  }
  Node* node = value->producer;
  Value* rows = row_operand(*node);
  const std::string name = value->name;
  graph.rename(value, name + "_flat");
  Value* moved = in_shape(graph, rows, leading, before);
  if (node->is("Gemm") && node->get_int("transB", 0) != 0)
    return emit(graph, "MatMul", {moved, transposed(graph, node->inputs[1], {1, 0}, before)}, before, {}, name);
  if (node->is("Gemm")) return emit(graph, "MatMul", {moved, node->inputs[1]}, before, {}, name);
  std::vector<Value*> operands = node->inputs;
  for (Value*& operand : operands)
    if (operand == rows) operand = moved;
  return emit(graph, node->op_type, operands, before, node->attributes, name);
}

/// Exporters flatten [batch, sequence, k] to [batch·sequence, k] around a product with a matrix:
///   Reshape → MatMul → Add → Reshape   becomes   (Reshape →) MatMul → Add
/// on the unflattened value.
bool unflatten_rows(Graph& graph, Node* node) {
  Value* flat = node->inputs[0];
  const Shape& shape = node->outputs[0]->shape();
  if (flat->rank() != 2 || shape.size() < 3 || !(shape.back() == flat->shape()[1])) return false;
  // Equal elements and columns mean equal rows, unless there are no columns: [1, 0] may become [1, 5, 0].
  const Shape leading(shape.begin(), shape.end() - 1);
  if (shape.back().lower_bound().value_or(0) < 1 && !(product(leading) == flat->shape()[0])) return false;
  size_t products = 0;
  for (Value* at = flat; !made_by(at, "Reshape"); ++products) {
    Value* next = at->producer && used_once(graph, at) ? row_operand(*at->producer) : nullptr;
    if (!next) return false;
    at = next;
  }
  if (products == 0) return false;
  return replace(graph, node->outputs[0], in_shape(graph, flat, leading, node));
}

/// The product from which element-wise operators and Softmax compute a value [batches, m, n], if all of these could be
/// computed with several batch dimensions; null if there is none. A symbol in place of batches may turn out to be 1,
/// and broadcast.
const Node* batched_product(const Graph& graph, const Value* value, const Expr& batches) {
  const Node* node = value->producer;
  const auto fits = [&](const Value* operand) {
    return !operand || operand->rank() < 3 || operand->shape().front().is(1) || operand->shape().front() == batches;
  };
  if (!node || !node->domain.empty() || node->outputs.size() != 1 || value->rank() != 3 || !used_once(graph, value) ||
      !(value->shape().front() == batches) || !std::all_of(node->inputs.begin(), node->inputs.end(), fits))
    return nullptr;
  if (node->is("MatMul")) return node;
  if (node->is("Softmax") ? axis_of(*node, "axis", -1, 3) != 2 : !is_elementwise(*node)) return nullptr;
  for (const Value* operand : node->inputs)
    if (operand && operand->shape() == value->shape())
      if (const Node* product = batched_product(graph, operand, batches)) return product;
  return nullptr;
}

/// Whether an operand [batches, m, n], perhaps transposed, had these leading dimensions before they were merged.
bool had_batches(const Value* operand, const Shape& leading) {
  if (const Node* transpose = made_by(operand, "Transpose"); transpose && permutation_of(*transpose).front() == 0)
    operand = transpose->inputs[0];
  const Node* reshape = made_by(operand, "Reshape");
  return reshape && reshape->inputs[0]->rank() == leading.size() + 2 &&
         std::equal(leading.begin(), leading.end(), reshape->inputs[0]->shape().begin());
}

/// Reshapes an operand [batches, m, n] to [leading…, m, n]; others broadcast as before.
Value* divided(Graph& graph, Value* operand, const Shape& leading, const Node* before) {
  if (!operand || operand->rank() != 3) return operand;
  Shape shape = operand->shape().front().is(1) ? Shape(leading.size(), Expr(1)) : leading;
  shape.insert(shape.end(), operand->shape().begin() + 1, operand->shape().end());
  return reshaped(graph, operand, shape, before);
}

/// Recomputes a value [batches, m, n], back to its product, as [leading…, m, n].
Value* in_batches(Graph& graph, const Value* value, const Shape& leading, const Node* before) {
  const Node* node = value->producer;
  const auto leads = [&](const Value* operand) {
    return !node->is("MatMul") && operand && operand->shape() == value->shape() &&
           batched_product(graph, operand, value->shape().front());
  };
  std::vector<Value*> operands;
  for (Value* operand : node->inputs)
    operands.push_back(leads(operand) ? in_batches(graph, operand, leading, before)
                                      : divided(graph, operand, leading, before));
  return emit(graph, node->op_type, operands, before,
              node->is("Softmax") ? std::vector{attribute("axis", int64_t{-1})} : node->attributes);
}

/// Exporters merge batch and heads around batches of products:
///   Reshape → MatMul → Add → Reshape   becomes   MatMul → Add
/// on values that still have both.
bool divide_batches(Graph& graph, Node* node) {
  Value* flat = node->inputs[0];
  const Shape& shape = node->outputs[0]->shape();
  if (flat->rank() != 3 || shape.size() < 4 || !std::equal(shape.end() - 2, shape.end(), flat->shape().end() - 2))
    return false;
  const Shape leading(shape.begin(), shape.end() - 2);
  if (!(product(leading) == flat->shape().front())) return false;
  const Node* product = batched_product(graph, flat, flat->shape().front());
  if (!product) return false;
  const Value *a = product->inputs[0], *b = product->inputs[1];
  if (a->rank() != 3 || b->rank() != 3) return false;
  // Merging a single batch changes no shape visibly: computed operands may have had it.
  const bool may_have = leading.front().is(1) && a->kind == ValueKind::result && b->kind == ValueKind::result;
  if (!may_have && !had_batches(a, leading) && !had_batches(b, leading)) return false;
  return replace(graph, node->outputs[0], in_batches(graph, flat, leading, node));
}

bool broadcasts_along(const Value* factor, size_t rank, size_t axis) {
  const size_t left_out = rank - std::min(rank, factor->rank());
  return axis < left_out || factor->shape()[axis - left_out].is(1);
}

/// Along its axis, the sum of a scatter of one update into zeros is the update, also if a factor scales all:
///   ReduceSum (ScatterElements (zeros, index, update) · factor)   becomes   update · factor + zero · factor
/// where zero = Gather (zeros, index) stands for the other elements: zero · factor is NaN where the factor is infinite,
/// and an index that is out of range is still an error. In the gradient of a cross entropy this is the sum over
/// classes.
bool sum_of_scattered(Graph& graph, Node* node) {
  Value* result = node->outputs[0];
  const auto axes = numbers(node->input(1));
  if (!axes || axes->size() != 1) return false;
  Value *scattered = node->inputs[0], *factor = nullptr;
  if (Node* product = made_by(scattered, "Mul")) {
    const size_t at = made_by(product->inputs[0], "ScatterElements") ? 0 : 1;
    scattered = product->inputs[at];
    factor = product->inputs[1 - at];
  }
  const Node* scatter = made_by(scattered, "ScatterElements");
  if (!scatter || !ops::are_zeros(scatter->inputs[0])) return false;
  const std::string reduction = scatter->get_string("reduction", "none");
  const size_t rank = scattered->rank();
  const size_t axis = static_cast<size_t>(axis_of(*scatter, "axis", 0, rank));
  Shape row = scattered->shape();
  const auto fewest = row[axis].lower_bound();
  row[axis] = 1;
  if ((*axes)[0] != static_cast<int64_t>(axis) && (*axes)[0] + static_cast<int64_t>(rank) != static_cast<int64_t>(axis))
    return false;
  if ((reduction != "none" && reduction != "add") || scatter->inputs[2]->shape() != row || !fewest || *fewest < 2 ||
      (factor && !(broadcasts_along(factor, rank, axis) && factor->rank() <= rank)))
    return false;
  Value* sum = scatter->inputs[2];
  Value* zeros = expanded(graph, graph.constant_scalar(sum->dtype(), 0), {scattered->shape()[axis]}, node);
  Value* others = emit(graph, "Gather", {zeros, scatter->inputs[1]}, node, {attribute("axis", int64_t{0})});
  if (factor) {
    sum = emit(graph, "Mul", {sum, factor}, node);
    others = emit(graph, "Mul", {others, factor}, node);
  }
  sum = emit(graph, "Add", {sum, others}, node, {}, result->name);
  return replace(graph, result, reshaped(graph, sum, result->shape(), node));
}

/// The permutation that exchanges the last two of `rank` dimensions.
std::vector<int64_t> turning(size_t rank) {
  std::vector<int64_t> permutation(rank);
  std::iota(permutation.begin(), permutation.end(), 0);
  std::swap(permutation[rank - 2], permutation[rank - 1]);
  return permutation;
}

/// The transpose of a product is the product of its transposed operands in reverse order. One of them is a transpose
/// already:
///   Transpose (MatMul (Transpose (a), b))   becomes   MatMul (Transpose (b), a)
/// So the gradient of a weight that is used transposed has the weight's own layout, in which ranks also reduce it.
bool turn_product(Graph& graph, Node* node) {
  Value* result = node->outputs[0];
  const Node* product = used_once(graph, node->inputs[0]) ? made_by(node->inputs[0], "MatMul") : nullptr;
  const size_t rank = result->rank();
  if (!product || rank < 2 || product->inputs[0]->rank() != rank || product->inputs[1]->rank() != rank) return false;
  const std::vector<int64_t> turn = turning(rank);
  if (permutation_of(*node) != turn) return false;
  const auto is_turned = [&](const Value* operand) {
    const Node* transpose = made_by(operand, "Transpose");
    return transpose && permutation_of(*transpose) == turn;
  };
  const auto turned = [&](Value* operand) {
    return is_turned(operand) ? operand->producer->inputs[0] : transposed(graph, operand, turn, node);
  };
  if (!is_turned(product->inputs[0]) && !is_turned(product->inputs[1])) return false;
  Value *left = turned(product->inputs[1]), *right = turned(product->inputs[0]);
  return replace(graph, result, emit(graph, "MatMul", {left, right}, node, {}, result->name));
}

}  // namespace

std::vector<Rule> linear_rules() {
  return {{"Gemm", split_gemm},
          {"Reshape", unflatten_rows},
          {"Reshape", divide_batches},
          {"Transpose", turn_product},
          {"ReduceSum", sum_of_scattered}};
}

}  // namespace tessera::rewrite

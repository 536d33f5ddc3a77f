#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ir/einsum.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/infer.h"

/// Gradients of matrix products: products again.
namespace tessera::ops {
namespace {

// All dimensions but the last as one.
Value* as_rows(GradientBuilder& b, Value* a) {
  Expr rows = 1;
  for (size_t d = 0; d + 1 < a->rank(); ++d) rows = rows * a->shape()[d];
  return b.reshape(a, {rows, a->shape().back()});
}

}  // namespace

void matmul_gradient(GradientBuilder& b) {
  Value *a = b.x(0), *w = b.x(1), *g = b.g();
  // Vectors become matrices with one row or one column.
  Shape result = g->shape();
  if (w->rank() == 1) result.push_back(1);
  if (a->rank() == 1) result.insert(result.end() - 1, 1);
  g = b.reshape(g, result);
  Value* left = a->rank() == 1 ? b.reshape(a, {1, a->shape()[0]}) : a;
  Value* right = w->rank() == 1 ? b.reshape(w, {w->shape()[0], 1}) : w;
  const auto back = [&](Value* gradient, const Value* operand, const Value* matrix) {
    return b.reshape(b.sum_to(gradient, matrix->shape()), operand->shape());
  };
  if (b.wants(0)) b.give(0, back(b.emit("MatMul", {g, b.turn(right)}), a, left));
  if (!b.wants(1)) return;
  // By one matrix, all rows at once: their products' sum is a product, too.
  if (right->rank() == 2 && left->rank() > 2)
    b.give(1, back(b.emit("MatMul", {b.turn(as_rows(b, left)), as_rows(b, g)}), w, right));
  else
    b.give(1, back(b.emit("MatMul", {b.turn(left), g}), w, right));
}

void gemm_gradient(GradientBuilder& b) {
  Value *a = b.x(0), *w = b.x(1), *g = b.g();
  const bool a_turned = b.node.get_int("transA", 0) != 0, w_turned = b.node.get_int("transB", 0) != 0;
  const double alpha = b.node.get_float("alpha", 1), beta = b.node.get_float("beta", 1);
  const auto as = [&](Value* matrix, bool is_turned) { return is_turned ? b.turn(matrix) : matrix; };
  // A' = g·B'ᵀ and B' = A'ᵀ·g for y = A'·B', each turned back as it was.
  if (b.wants(0)) {
    Value* right = as(w, w_turned);
    Value* gradient = a_turned ? b.emit("MatMul", {right, b.turn(g)}) : b.emit("MatMul", {g, b.turn(right)});
    b.give(0, b.mul(gradient, alpha));
  }
  if (b.wants(1)) {
    Value* left = as(a, a_turned);
    Value* gradient = w_turned ? b.emit("MatMul", {b.turn(g), left}) : b.emit("MatMul", {b.turn(left), g});
    b.give(1, b.mul(gradient, alpha));
  }
  if (b.wants(2)) b.give(2, b.mul(b.sum_to(g, b.x(2)->shape()), beta));
}

void einsum_gradient(GradientBuilder& b) {
  std::vector<size_t> ranks;
  for (const Value* operand : b.node.inputs) ranks.push_back(operand->rank());
  const EinsumEquation equation = EinsumEquation::read(b.node.get_string("equation", ""), ranks, b.node.label());
  // Labels become letters of their own, so that the dimensions of an ellipsis are ordinary.
  std::vector<std::string> labels;
  const auto letter = [&](const std::string& label) {
    auto found = std::find(labels.begin(), labels.end(), label);
    if (found == labels.end()) found = labels.insert(labels.end(), label);
    const auto index = static_cast<char>(found - labels.begin());
    return static_cast<char>(index < 26 ? 'a' + index : 'A' + (index - 26));
  };
  const auto term = [&](const std::vector<std::string>& dims) {
    std::string text;
    for (const std::string& label : dims) text += letter(label);
    return text;
  };
  for (size_t i = 0; i < b.node.inputs.size(); ++i) {
    if (!b.wants(i)) continue;
    const std::vector<std::string>& own = equation.operands[i];
    // Where a label stands first in the operand. If it stands there again, the operand is read along a diagonal.
    const auto first_of = [&](size_t d) {
      return static_cast<size_t>(std::find(own.begin(), own.end(), own[d]) - own.begin());
    };
    // The product of the result's gradient with all other operands, summed to the labels that this one shares.
    std::string terms = term(equation.result);
    std::vector<Value*> operands = {b.g()};
    std::vector<std::string> known = equation.result;
    for (size_t j = 0; j < b.node.inputs.size(); ++j) {
      if (j == i) continue;
      terms += "," + term(equation.operands[j]);
      operands.push_back(b.x(j));
      known.insert(known.end(), equation.operands[j].begin(), equation.operands[j].end());
    }
    std::vector<std::string> shared;
    for (size_t d = 0; d < own.size(); ++d)
      if (first_of(d) == d && std::find(known.begin(), known.end(), own[d]) != known.end()) shared.push_back(own[d]);
    Value* gradient = b.emit("Einsum", operands, {{"equation", terms + "->" + term(shared), ""}});
    // A dimension of an ellipsis may have been broadcast, and one that only this operand has was summed.
    Shape full;
    size_t next = 0;
    for (size_t d = 0; d < own.size(); ++d) {
      const bool there = first_of(d) == d && std::find(known.begin(), known.end(), own[d]) != known.end();
      full.push_back(there ? gradient->shape()[next++] : Expr(1));
    }
    gradient = b.reshape(gradient, full);
    for (size_t d = 0; d < own.size(); ++d) {
      if (first_of(d) == d) continue;
      const auto along = [&](size_t dim) {
        Shape shape(own.size(), 1);
        shape[dim] = b.x(i)->shape()[dim];
        return b.reshape(b.range(shape[dim]), shape);
      };
      gradient = b.where(b.emit("Equal", {along(d), along(first_of(d))}), gradient, 0.0);
    }
    b.give(i, gradient);
  }
}

}  // namespace tessera::ops

#include "tessera/ops/example.h"
#include "tessera/ops/gradients/gradient.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/registry.h"

// Determinants and inverses of square matrices [..., n, n]: each matrix is whole.
namespace tessera::ops {
namespace {

size_t rank_of_matrices(const Node& node) {
  const Shape& x = shape_of(node, 0);
  if (x.size() < 2 || !same_extent(x[x.size() - 2], x[x.size() - 1]))
    fail_node(node, "its operand {} must be square matrices", to_string(x));
  if (!is_float(node.input(0)->dtype()))
    fail_node(node, "its operand is {}; {} works on floats; insert a Cast", name_of(node.input(0)->dtype()),
              node.op_type);
  return x.size();
}

void infer_determinant(Node& node) {
  rank_of_matrices(node);
  const Shape& x = shape_of(node, 0);
  set_result(node, 0, node.input(0)->dtype(), Shape(x.begin(), x.end() - 2));
}

void infer_inverse(Node& node) {
  rank_of_matrices(node);
  set_result(node, 0, node.input(0)->dtype(), shape_of(node, 0));
}

Rule matrices_rule(const Node& node) {
  const size_t rank = rank_of_matrices(node);
  std::vector<bool> stays(rank, true);
  stays[rank - 1] = stays[rank - 2] = false;
  Rule rule = dimension_rule(node, stays);
  const auto kept = static_cast<ptrdiff_t>(node.output()->rank());
  rule.results = {{rule.operands[0].begin(), rule.operands[0].begin() + kept}};
  return rule;
}

Expr matrices_flops(const Node& node) {
  const Shape& x = shape_of(node, 0);
  return product(x) * x.back() * (node.op_type == "Inverse" ? 2 : 1);
}

// d det X = det X · tr (X⁻¹ dX). X must be regular.
void determinant_gradient(GradientBuilder& b) {
  const Shape& x = b.x()->shape();
  Shape column(x.begin(), x.end() - 2);
  column.insert(column.end(), 2, Expr(1));
  Value* inverse = b.emit_all("com.microsoft", "Inverse", {b.x()}, {}, 1)[0];
  b.give(0, b.mul(b.reshape(b.mul(b.g(), b.y()), column), b.turn(inverse)));
}

// d X⁻¹ = -X⁻¹ dX X⁻¹
void inverse_gradient(GradientBuilder& b) {
  Value* turned = b.turn(b.y());
  b.give(0, b.neg(b.emit("MatMul", {b.emit("MatMul", {turned, b.g()}), turned})));
}

std::vector<Example> examples(std::string_view) {
  using namespace example;
  return {{"of a batch", {input("2 4 3 3", reals)}},
          {"of one", {input("4 4", reals)}},
          {"of a symbolic batch", {input("b=3 2 2", reals)}},
          {"of none", {input("0 3 3", reals)}},
          {"bfloat16", {input("4 2 2", reals, DType::bfloat16)}, {}, bfloat16}};
}

}  // namespace

std::vector<OpDef> square_matrix_ops() {
  return {
      {.type = "Det",
       .infer = infer_determinant,
       .rule = matrices_rule,
       .flops = matrices_flops,
       .gradient = determinant_gradient,
       .examples = examples},
      {.type = "Inverse",
       .domain = "com.microsoft",
       .infer = infer_inverse,
       .rule = matrices_rule,
       .flops = matrices_flops,
       .gradient = inverse_gradient,
       .examples = examples},
  };
}

}  // namespace tessera::ops

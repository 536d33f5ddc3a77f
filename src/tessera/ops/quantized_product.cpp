#include "tessera/ops/infer.h"
#include "tessera/ops/matmul.h"
#include "tessera/ops/registry.h"

// Products of quantized tensors, summed in int32: exact, and so the same in every layout.
namespace tessera::ops {
namespace {

void require_bytes(const Node& node, size_t index) {
  const DType dtype = operand(node, index).dtype();
  if (dtype != DType::uint8 && dtype != DType::int8)
    fail_node(node, "operand {} is {}; it multiplies uint8 and int8", index, name_of(dtype));
}

/// A zero point is one number, or a list along the dimension of operand `of` that is `from_end` from the last.
void require_zero_point(const Node& node, size_t index, size_t of, size_t from_end) {
  if (!has_operand(node, index)) return;
  const Value& zero = operand(node, index);
  if (zero.dtype() != operand(node, of).dtype())
    fail_node(node, "its zero point '{}' is {}, but its operand {} {}; they must have one type", zero.name,
              name_of(zero.dtype()), of, name_of(operand(node, of).dtype()));
  const Shape& whole = shape_of(node, of);
  const Expr& along = whole[whole.size() - 1 - from_end];
  if (zero.rank() > 1 || (zero.rank() == 1 && !zero.shape()[0].is(1) && !same_extent(zero.shape()[0], along)))
    fail_node(node, "its zero point {} must be one number or a list of {}", to_string(zero.shape()), along.str());
}

void infer_matmul_integer(Node& node) {
  for (const size_t index : {0, 1}) {
    require_bytes(node, index);
    if (shape_of(node, index).size() < 2) fail_node(node, "operand {} is no matrix", index);
  }
  require_zero_point(node, 2, 0, 1);
  require_zero_point(node, 3, 1, 0);
  set_result(node, 0, DType::int32, matmul_shape(node));
}

/// "b m k, k n, m, n -> b m n | k: sum": a list of zero points is split with its dimension.
Rule matmul_integer_rule(const Node& node) {
  Rule rule = matmul_factors(node);
  const auto beside = [&](size_t index, const DimFactors& along) {
    if (has_operand(node, index) && shape_of(node, index).size() == 1 && !shape_of(node, index)[0].is(1))
      rule.operands[index] = {along};
  };
  beside(2, rule.operands[0][rule.operands[0].size() - 2]);
  beside(3, rule.operands[1].back());
  return rule;
}

}  // namespace

std::vector<OpDef> quantized_ops() {
  return {
      {.type = "MatMulInteger", .infer = infer_matmul_integer, .rule = matmul_integer_rule, .flops = matmul_flops},
  };
}

}  // namespace tessera::ops

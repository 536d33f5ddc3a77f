#include <numeric>

#include "tessera/base/counted.h"
#include "tessera/ops/examples/examples.h"
#include "tessera/ops/library/codes.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/local/form.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

/// The layout of the scales of QuantizeLinear and DequantizeLinear relative to the elements.
struct Scales {
  enum class Kind { one, per_axis, per_block } kind = Kind::one;
  size_t axis = 0;
  int64_t block = 0;
};

Scales scales_of(const Node& node) {
  const Shape &x = shape_of(node, 0), &scale = shape_of(node, 1);
  const int64_t block = node.get_int("block_size", 0);
  if (has_operand(node, 2) && shape_of(node, 2) != scale && !(product(shape_of(node, 2)).is(1) && product(scale).is(1)))
    fail_node(node, "its zero point {} and its scale {} must have one shape", to_string(shape_of(node, 2)),
              to_string(scale));
  // As quantizers write it, whatever the axis; a list of one scale per block is one only if a block holds all.
  if (scale.empty() || (scale.size() == 1 && scale[0].is(1) && (x.size() != 1 || block == 0))) return {};
  const size_t axis = normalize_axis(node, node.get_int("axis", 1), x.size());
  if (scale.size() == 1 && block == 0) {
    if (!same_extent(scale[0], x[axis]))
      fail_node(node, "it has {} scales for dimension {}, which is {}", scale[0].str(), axis, x[axis].str());
    return {Scales::Kind::per_axis, axis, 0};
  }
  if (block < 1 || scale.size() != x.size())
    fail_node(node,
              "its scale {} must be one number, a list along dimension {}, or, with a block_size, one number per "
              "block of {}",
              to_string(scale), axis, to_string(x));
  for (size_t d = 0; d < x.size(); ++d)
    if (!same_extent(scale[d], d == axis ? ceildiv(x[d], block) : x[d]))
      fail_node(node, "its scale {} does not fit {} in blocks of {} along dimension {}", to_string(scale), to_string(x),
                block, d);
  return {Scales::Kind::per_block, axis, block};
}

DType stated_type(const Node& node, DType otherwise) {
  const int64_t stated = node.get_int("output_dtype", 0);
  return stated == 0 ? otherwise : static_cast<DType>(stated);
}

void infer_quantize(Node& node) {
  const Value& x = operand(node, 0);
  scales_of(node);
  set_result(node, 0, has_operand(node, 2) ? operand(node, 2).dtype() : stated_type(node, DType::uint8), x.shape());
}

void infer_dequantize(Node& node) {
  const Value& x = operand(node, 0);
  scales_of(node);
  if (has_operand(node, 2) && operand(node, 2).dtype() != x.dtype())
    fail_node(node, "its operand is {}, but its zero point {}; they must have one type", name_of(x.dtype()),
              name_of(operand(node, 2).dtype()));
  set_result(node, 0, stated_type(node, operand(node, 1).dtype()), x.shape());
}

/// Every dimension passes; scales and zero points are split with their dimension, and a block stays together. Elements
/// of less than a byte are split where that cuts no byte.
Rule quantization_rule(const Node& node) {
  const Shape& x = shape_of(node, 0);
  const Scales scales = scales_of(node);
  Rule rule;
  std::vector<DimFactors> own(x.size()), beside(shape_of(node, 1).size());
  const auto cuts_bytes = [&](size_t d) {
    const auto dim = static_cast<int64_t>(d);
    if (!fills_bytes(*node.input(0), dim) || !fills_bytes(*node.output(), dim)) return true;
    if (!has_operand(node, 2)) return false;
    if (scales.kind == Scales::Kind::per_block) return !fills_bytes(*node.input(2), dim);
    return scales.kind == Scales::Kind::per_axis && d == scales.axis && !fills_bytes(*node.input(2), 0);
  };
  for (size_t d = 0; d < x.size(); ++d) {
    if (x[d].is(1) || cuts_bytes(d)) continue;
    const bool blocks = scales.kind == Scales::Kind::per_block && d == scales.axis;
    if (blocks) {
      const auto count = Expr::exact_divide(x[d], scales.block);
      if (!count) continue;
      const int block = rule.add(factor_name(d), *count);
      beside[d] = {block};
      own[d] = {block, rule.add(factor_name(d) + "_in", scales.block, FactorKind::whole)};
      continue;
    }
    own[d] = {rule.add(factor_name(d), x[d])};
    if (scales.kind == Scales::Kind::per_block) beside[d] = own[d];
    if (scales.kind == Scales::Kind::per_axis && d == scales.axis) beside[0] = own[d];
  }
  rule.operands = {own, beside};
  if (node.inputs.size() > 2) {
    if (has_operand(node, 2)) beside.resize(shape_of(node, 2).size());
    rule.operands.push_back(has_operand(node, 2) ? beside : std::vector<DimFactors>());
  }
  rule.results = {own};
  return rule;
}

void infer_dynamic(Node& node) {
  const Value& x = operand(node, 0);
  if (node.inputs.size() != 1) fail_node(node, "it has {}; it takes 1", counted(node.inputs.size(), "operand"));
  if (!is_float(x.dtype())) fail_node(node, "it quantizes floats, not {}; Cast it", name_of(x.dtype()));
  if (!node.output()) fail_node(node, "its first result, the codes, has no name; it must have one");
  set_result(node, 0, DType::uint8, x.shape());
  set_result(node, 1, x.dtype(), {});
  set_result(node, 2, DType::uint8, {});
}

/// All elements count for the range, so that every dimension is combined.
Rule dynamic_rule(const Node& node) {
  std::vector<int> all(shape_of(node, 0).size());
  std::iota(all.begin(), all.end(), 0);
  return rule_along(node, all, FactorKind::moment);
}

/// The standard has it of float32 only.
std::vector<Value*> dynamic_body(NodeBuilder& b, const Node& node) {
  Value* x = node.inputs[0];
  if (x->dtype() == DType::float32) return {};
  const auto of_all = [&](std::string_view type) {
    return b.emit(type, {x, b.graph.constant_int64(all_axes(x->rank()))}, {{"keepdims", int64_t{0}}});
  };
  Value* greatest = of_all("ReduceMax");
  return codes_by_range(b, x, greatest, of_all("ReduceMin"));
}

/// Two comparisons, a division, a rounding and an addition.
Expr dynamic_flops(const Node& node) {
  return 5 * elements_of(*node.input(0));
}

}  // namespace

std::vector<OpDef> quantization_ops() {
  return {
      {.type = "DynamicQuantizeLinear",
       .infer = infer_dynamic,
       .rule = dynamic_rule,
       .flops = dynamic_flops,
       .localize = localize_dynamic_quantization,
       .no_gradient = "its results are codes",
       .body = dynamic_body,
       .examples = dynamic_quantize_examples},
      {.type = "QuantizeLinear",
       .infer = infer_quantize,
       .rule = quantization_rule,
       .no_gradient = "its results are codes",
       .examples = quantize_examples},
      {.type = "DequantizeLinear",
       .infer = infer_dequantize,
       .rule = quantization_rule,
       .no_gradient = "its operands are codes",
       .examples = dequantize_examples},
  };
}

}  // namespace tessera::ops

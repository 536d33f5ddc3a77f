#include "tessera/ops/library/dims.h"

#include <algorithm>

namespace tessera::ops {

std::vector<DimFactors> add_dims(Rule& rule, const Shape& shape, std::string_view letters, FactorKind kind) {
  std::vector<DimFactors> dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    std::string name(1, letters[std::min(d, letters.size() - 1)]);
    if (d >= letters.size()) name += std::to_string(d);
    dims.push_back({rule.add(std::move(name), shape[d], kind)});
  }
  return dims;
}

std::vector<DimFactors> broadcast_dims(const Shape& operand, const Shape& full, const std::vector<DimFactors>& dims) {
  std::vector<DimFactors> result;
  size_t missing = full.size() - operand.size();
  for (size_t d = 0; d < operand.size(); ++d) {
    bool repeated = operand[d].is(1) && !full[missing + d].is(1);
    result.push_back(repeated ? DimFactors{} : dims[missing + d]);
  }
  return result;
}

std::vector<DimFactors> no_dims(size_t rank) {
  return std::vector<DimFactors>(rank);
}

Rule blank_rule(const Node& node) {
  Rule rule;
  for (const Value* operand : node.inputs) rule.operands.push_back(no_dims(operand ? operand->rank() : 0));
  for (const Value* result : node.outputs) rule.results.push_back(no_dims(result ? result->rank() : 0));
  return rule;
}

Rule rule_along(const Node& node, const std::vector<int>& dims, FactorKind kind) {
  Rule rule = blank_rule(node);
  const Shape& shape = node.input(0)->shape();
  rule.operands[0] = add_dims(rule, shape, "abcdefgh");
  for (int d : dims) rule.factors[d].kind = kind;
  for (size_t r = 0; r < node.outputs.size(); ++r) {
    const Value* result = node.outputs[r];
    if (!result || result->rank() != shape.size()) continue;
    for (size_t d = 0; d < shape.size(); ++d)
      if (result->shape()[d] == shape[d]) rule.results[r][d] = rule.operands[0][d];
  }
  return rule;
}

bool fills_bytes(const Value& value, int64_t dim) {
  const int64_t needed = elements_of_whole_bytes(value.dtype());
  if (needed == 1) return true;
  const Shape behind(value.shape().begin() + dim + 1, value.shape().end());
  return Expr::exact_divide(product(behind), needed).has_value();
}

Expr elements_of(const Value& value) {
  return product(value.shape());
}

}  // namespace tessera::ops

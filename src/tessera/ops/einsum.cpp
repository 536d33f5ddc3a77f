#include "tessera/ops/einsum.h"

#include <algorithm>

#include "tessera/ops/examples/examples.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/require.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
Equation read_equation(const Node& node) {
  std::string text = node.get_string("equation", "");
  std::vector<size_t> ranks;
  for (size_t i = 0; i < node.inputs.size(); ++i) ranks.push_back(shape_of(node, i).size());
  Equation equation{EinsumEquation::read(text, ranks, node.label()), {}};
  for (size_t i = 0; i < ranks.size(); ++i) {
    const Shape& shape = shape_of(node, i);
    for (size_t d = 0; d < shape.size(); ++d) {
      auto [found, fresh] = equation.extents.emplace(equation.operands[i][d], shape[d]);
      auto merged = fresh ? shape[d] : broadcast_extent(found->second, shape[d]);
      if (!merged)
        fail_node(node, "in '{}', '{}' is both {} and {}; it must have one extent", text, found->first,
                  found->second.str(), shape[d].str());
      found->second = *merged;
    }
  }
  return equation;
}

namespace {

void infer_einsum(Node& node) {
  std::vector<size_t> all;
  for (size_t i = 0; i < node.inputs.size(); ++i) all.push_back(i);
  DType dtype = require_same_dtype(node, all);
  Equation equation = read_equation(node);
  Shape shape;
  for (const std::string& label : equation.result) shape.push_back(equation.extents.at(label));
  set_result(node, 0, dtype, std::move(shape));
}

Rule einsum_rule(const Node& node) {
  Equation equation = read_equation(node);
  Rule rule = blank_rule(node);
  std::map<std::string, int> factors;
  auto factor_of = [&](const std::string& label) {
    auto [found, fresh] = factors.emplace(label, 0);
    if (fresh) {
      bool kept = std::count(equation.result.begin(), equation.result.end(), label) > 0;
      found->second = rule.add(label, equation.extents.at(label), kept ? FactorKind::pass : FactorKind::reduction);
    }
    return found->second;
  };
  for (size_t i = 0; i < equation.operands.size(); ++i) {
    const auto& labels = equation.operands[i];
    for (size_t d = 0; d < labels.size(); ++d) {
      int factor = factor_of(labels[d]);
      // A diagonal: the same rank would need the same part of both dimensions.
      if (std::count(labels.begin(), labels.end(), labels[d]) > 1) rule.factors[factor].kind = FactorKind::whole;
      bool repeated = node.input(i)->shape()[d].is(1) && !rule.factors[factor].size.is(1);
      if (!repeated) rule.operands[i][d] = {factor};
    }
    std::vector<int> others;
    for (int other = 0; other < static_cast<int>(equation.operands.size()); ++other)
      if (other != static_cast<int>(i)) others.push_back(other);
    rule.partial(Reduction::sum, {static_cast<int>(i)}, std::move(others));
  }
  for (size_t d = 0; d < equation.result.size(); ++d) rule.results[0][d] = {factor_of(equation.result[d])};
  return rule;
}

Expr einsum_flops(const Node& node) {
  Expr points = 1;
  for (const auto& [label, extent] : read_equation(node).extents) points = points * extent;
  return static_cast<int64_t>(std::max<size_t>(node.inputs.size(), 1)) * points;
}

}  // namespace

std::vector<OpDef> einsum_ops() {
  return {{.type = "Einsum",
           .infer = infer_einsum,
           .rule = einsum_rule,
           .flops = einsum_flops,
           .gradient = einsum_gradient,
           .examples = einsum_examples}};
}

}  // namespace tessera::ops

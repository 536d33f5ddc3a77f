#include <algorithm>
#include <map>

#include "tessera/ops/dims.h"
#include "tessera/ops/infer.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/require.h"

namespace tessera::ops {
namespace {

// An Einsum's equation is its sharding rule. Per operand and for the result: one label per dimension. A letter labels
// itself; the dimensions of an ellipsis are labelled "e0", "e1", … counted from the right, so that they broadcast.
struct Equation {
  std::vector<std::vector<std::string>> operands;
  std::vector<std::string> result;
  std::map<std::string, Expr> extents;
};

std::vector<std::string> labels_of(const Node& node, std::string_view term, size_t ellipsis_rank) {
  std::vector<std::string> labels;
  for (size_t i = 0; i < term.size(); ++i) {
    if (term[i] == ' ') continue;
    if (term.substr(i, 3) == "...") {
      for (size_t d = ellipsis_rank; d-- > 0;) labels.push_back("e" + std::to_string(d));
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(term[i]))) {
      labels.emplace_back(1, term[i]);
    } else {
      fail_node(node, "the equation has a '{}'; it may hold letters, ',', '->', '...' and spaces", term[i]);
    }
  }
  return labels;
}

Equation read_equation(const Node& node) {
  std::string text = node.get_string("equation", "");
  size_t arrow = text.find("->");
  std::string_view left = std::string_view(text).substr(0, arrow);
  Equation equation;
  size_t ellipsis_rank = 0;
  for (size_t start = 0; start <= left.size();) {
    size_t end = std::min(left.find(',', start), left.size());
    std::string_view term = left.substr(start, end - start);
    size_t index = equation.operands.size();
    if (index >= node.inputs.size())
      fail_node(node, "the equation '{}' has more terms than the {} operands", text, node.inputs.size());
    const Shape& shape = shape_of(node, index);
    size_t named = labels_of(node, term, 0).size(), own = 0;
    if (term.find("...") != std::string_view::npos && shape.size() > named) own = shape.size() - named;
    ellipsis_rank = std::max(ellipsis_rank, own);
    equation.operands.push_back(labels_of(node, term, own));
    if (equation.operands[index].size() != shape.size())
      fail_node(node, "the term '{}' has {} dimensions, operand {} has {} ({})", term, equation.operands[index].size(),
                index, shape.size(), to_string(shape));
    for (size_t d = 0; d < shape.size(); ++d) {
      auto [found, fresh] = equation.extents.emplace(equation.operands[index][d], shape[d]);
      auto merged = fresh ? shape[d] : broadcast_extent(found->second, shape[d]);
      if (!merged)
        fail_node(node, "in '{}', '{}' is both {} and {}; it must have one extent", text, found->first,
                  found->second.str(), shape[d].str());
      found->second = *merged;
    }
    start = end + 1;
  }
  if (equation.operands.size() != node.inputs.size())
    fail_node(node, "the equation '{}' has {} terms for {} operands", text, equation.operands.size(),
              node.inputs.size());
  if (arrow != std::string::npos) {
    equation.result = labels_of(node, std::string_view(text).substr(arrow + 2), ellipsis_rank);
    for (const std::string& label : equation.result)
      if (!equation.extents.count(label))
        fail_node(node, "the result of '{}' has a label '{}' that no operand has", text, label);
    return equation;
  }
  // Without an arrow: the ellipsis, then every letter that occurs once, in ASCII order.
  equation.result = labels_of(node, "...", ellipsis_rank);
  std::map<std::string, int> count;
  for (const auto& labels : equation.operands)
    for (const std::string& label : labels) ++count[label];
  for (const auto& [label, times] : count)
    if (times == 1 && label.size() == 1) equation.result.push_back(label);
  return equation;
}

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
    rule.partial(Reduction::sum, {static_cast<int>(i)});
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
  return {{"Einsum", "", infer_einsum, einsum_rule, einsum_flops}};
}

}  // namespace tessera::ops

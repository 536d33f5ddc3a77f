#include "tessera/generate/token_meetings.h"

#include <algorithm>
#include <set>

#include "tessera/ops/op.h"

namespace tessera::generate {
namespace {

bool passes_tokens(const ops::Rule& rule, const ops::DimFactors& dim, const std::string& symbol) {
  const auto in = [](const std::vector<ops::DimFactors>& result, int factor) {
    return std::any_of(result.begin(), result.end(), [&](const ops::DimFactors& factors) {
      return std::find(factors.begin(), factors.end(), factor) != factors.end();
    });
  };
  return std::any_of(dim.begin(), dim.end(), [&](int factor) {
    return mentions(rule.factors[factor].size, symbol) && rule.factors[factor].kind == ops::FactorKind::pass &&
           std::all_of(rule.results.begin(), rule.results.end(),
                       [&](const auto& result) { return result.empty() || in(result, factor); });
  });
}

bool has_tokens(const Value* operand, const std::string& symbol) {
  return operand && std::any_of(operand->shape().begin(), operand->shape().end(),
                                [&](const Expr& extent) { return mentions(extent, symbol); });
}

}  // namespace

bool mentions(const Expr& expression, const std::string& symbol) {
  std::set<std::string> symbols;
  expression.collect_symbols(symbols);
  return symbols.contains(symbol);
}

TokenMeeting where_tokens_meet(const Graph& graph, const std::string& symbol) {
  for (const auto& node : graph.nodes()) {
    if (node->is("Attention") || node->is("TensorScatter")) continue;
    if (std::none_of(node->inputs.begin(), node->inputs.end(),
                     [&](const Value* operand) { return has_tokens(operand, symbol); }))
      continue;
    const ops::Rule rule = ops::op_of(*node).rule(*node);
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      if (!node->inputs[i]) continue;
      const Shape& shape = node->inputs[i]->shape();
      for (size_t d = 0; d < shape.size(); ++d)
        if (mentions(shape[d], symbol) && !passes_tokens(rule, rule.operands.at(i).at(d), symbol))
          return {node.get(), node->inputs[i], d};
    }
  }
  return {};
}

}  // namespace tessera::generate

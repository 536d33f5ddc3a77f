#include "tessera/rewrite/across_samples.h"

#include <map>
#include <optional>

#include "tessera/ops/op.h"

namespace tessera::rewrite {
namespace {

using ops::FactorKind;

bool combines(const ops::Factor& factor) {
  const ops::FactorTraits& traits = ops::traits_of(factor.kind);
  return factor.makes_partial() || traits.communicates() || traits.by_window || factor.kind == FactorKind::target;
}

std::optional<size_t> dim_along(const std::vector<ops::DimFactors>& dims, int factor) {
  for (size_t d = 0; d < dims.size(); ++d)
    if (!dims[d].empty() && dims[d].front() == factor) return d;
  return std::nullopt;
}

/// The dimension along which a value has samples.
using Samples = std::map<const Value*, size_t>;

bool combines_samples(const Node& node, Samples& samples) {
  const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
  if (!op || !op->rule) return false;
  std::optional<ops::Rule> rule;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const auto known = samples.find(node.inputs[i]);
    if (known == samples.end()) continue;
    if (!rule) rule = op->rule(node);
    if (i >= rule->operands.size() || known->second >= rule->operands[i].size()) continue;
    const ops::DimFactors& factors = rule->operands[i][known->second];
    if (factors.empty()) continue;
    if (combines(rule->factors[static_cast<size_t>(factors.front())])) return true;
    for (size_t r = 0; r < node.outputs.size() && r < rule->results.size(); ++r)
      if (const auto dim = dim_along(rule->results[r], factors.front()); dim && node.outputs[r])
        samples.emplace(node.outputs[r], *dim);
  }
  return false;
}

}  // namespace

const Node* across_samples(const Graph& graph, const std::vector<const Value*>& inputs) {
  Samples samples;
  for (const Value* input : inputs) samples.emplace(input, 0);
  for (const auto& node : graph.nodes())
    if (combines_samples(*node, samples)) return node.get();
  return nullptr;
}

}  // namespace tessera::rewrite

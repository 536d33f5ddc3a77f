#include "tessera/parts/sizes.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ir/flow.h"
#include "tessera/ir/regions.h"
#include "tessera/ops/op.h"
#include "tessera/spmd/layout/equal_extents.h"

namespace tessera::parts {

std::vector<KnownExtent> known_extents(const Graph& graph, const std::map<std::string, Tensor>& inputs) {
  std::vector<KnownExtent> extents;
  for (const Value* input : graph.inputs) {
    const auto given = inputs.find(input->name);
    if (given == inputs.end() || !input->has_shape() || input->rank() != given->second.dims.size()) continue;
    for (size_t d = 0; d < input->rank(); ++d) extents.push_back({input->shape()[d], given->second.dims[d]});
  }
  return extents;
}

Symbols sizes_at(const Graph& graph, const std::map<std::string, Tensor>& inputs) {
  Symbols sizes;
  for (const auto& [symbol, found] : solve_extents(known_extents(graph, inputs))) sizes[symbol] = found.size;
  return sizes;
}

Symbols needed_sizes(const std::set<std::string>& symbols, const Symbols& sizes) {
  Symbols needed;
  for (const std::string& symbol : symbols) {
    const auto size = sizes.find(symbol);
    if (size == sizes.end())
      fail("shapes",
           "the size of '{}' must be known before the model is compiled, but the inputs' extents do not give it; "
           "replace it in the model by a number",
           symbol);
    needed.insert(*size);
  }
  return needed;
}

EqualSizes::EqualSizes(const compiler::Source& model) {
  if (!has_regions(model.model)) return;
  for (const auto& node : model.rewritten().graph->nodes())
    if (node->domain == flow::kDomain)
      for (spmd::ExtentEquality& found : spmd::equal_extents_of(*node, ops::op_of(*node).rule(*node)))
        equal_.push_back(std::move(found));
}

Symbols EqualSizes::contradicted_by(const Symbols& sizes) const {
  Symbols found;
  for (const spmd::ExtentEquality& equality : equal_) {
    std::set<std::string> symbols;
    for (const Expr* extent : {&equality.a, &equality.b}) extent->collect_symbols(symbols);
    if (!std::all_of(symbols.begin(), symbols.end(), [&](const auto& name) { return sizes.contains(name); })) continue;
    if (equality.a.evaluate(sizes) == equality.b.evaluate(sizes)) continue;
    for (const std::string& name : symbols) found.emplace(name, sizes.at(name));
  }
  return found;
}

}  // namespace tessera::parts

#include "tessera/spmd/decide/finer.h"

#include <algorithm>

#include "tessera/spmd/program.h"

namespace tessera::spmd {
namespace {

// Operations that take as long as receiving one byte, and as long as a small collective.
constexpr double kFlopsPerByte = 100, kFlopsPerCollective = 1e6;

bool has_factor(const ops::Rule& rule, std::string_view name) {
  return std::any_of(rule.factors.begin(), rule.factors.end(),
                     [&](const ops::Factor& factor) { return factor.name == name; });
}

}  // namespace

std::set<const Node*> nodes_for_finer_rules(const Layout& layout, const Decisions& decisions, const Hints& hints) {
  std::set<const Node*> found;
  for (size_t n = 0; n < layout.nodes.size(); ++n) {
    const NodeLayout& node = layout.nodes[n];
    const ops::OpDef& op = ops::op_of(*node.node);
    if (!op.finer_rule) continue;
    const ops::Rule finer = op.finer_rule(*node.node);
    for (size_t s = 0; s < node.subfactors.size(); ++s) {
      const std::vector<AxisRef>& axes = decisions.nodes[n].axes[s];
      const double size = hinted(node.subfactors[s].size, hints);
      if (!has_factor(finer, node.rule.factors[node.subfactors[s].factor].name) &&
          largest_part(size, axes) * static_cast<double>(ranks_of(axes)) > size)
        found.insert(node.node);
    }
  }
  return found;
}

double busiest_work(const Graph& graph, const Layout& layout, const Decisions& decisions, const Costs& costs) {
  const Traffic traffic = traffic_of(graph, layout, decisions, costs);
  if (costs.in_seconds()) return traffic.cost;
  const Hints& hints = costs.hints();
  double flops = 0;
  for (size_t n = 0; n < layout.nodes.size(); ++n) {
    const NodeLayout& node = layout.nodes[n];
    double own = hinted(ops::flops_of(*node.node), hints);
    for (size_t s = 0; s < node.subfactors.size(); ++s)
      if (const double size = hinted(node.subfactors[s].size, hints); size > 0)
        own *= largest_part(size, decisions.nodes[n].axes[s]) / size;
    flops += own;
  }
  return flops + kFlopsPerByte * traffic.cost + kFlopsPerCollective * traffic.collectives;
}

}  // namespace tessera::spmd

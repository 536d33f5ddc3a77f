#include <map>

#include "tessera/base/error.h"
#include "tessera/rewrite/canonical/rules.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

using Table = std::multimap<std::string_view, bool (*)(Graph&, Node*)>;

const Table& table() {
  static const Table all = [] {
    Table rules;
    for (auto family : {shape_rules, algebra_rules, linear_rules})
      for (const Rule& rule : family()) rules.emplace(rule.op_type, rule.apply);
    return rules;
  }();
  return all;
}

bool apply_rules(Graph& graph, Node* node) {
  if (!node->domain.empty()) return false;
  for (std::string_view key : {std::string_view(node->op_type), std::string_view()}) {
    auto [first, last] = table().equal_range(key);
    for (auto rule = first; rule != last; ++rule)
      if (rule->second(graph, node)) return true;
  }
  return false;
}

bool is_live(const Graph& graph, const Node& node) {
  for (const Value* result : node.outputs)
    if (result && (!result->uses.empty() || graph.is_output(result))) return true;
  return false;
}

}  // namespace

void canonicalize(OnnxModel& model) {
  constexpr int kMostSweeps = 200;
  Graph& graph = *model.graph;
  bool changed = true;
  for (int sweep = 0; changed; ++sweep) {
    check(sweep < kMostSweeps, "canonicalization reaches a fixpoint");
    changed = false;
    for (Node* node : nodes_of(graph))
      if (is_live(graph, *node) && apply_rules(graph, node)) changed = true;
    graph.erase_dead();
  }
}

}  // namespace tessera::rewrite

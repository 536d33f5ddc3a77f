#include "tessera/ir/kept_nodes.h"

#include <algorithm>
#include <set>

#include "tessera/ir/flow.h"

namespace tessera {

KeptNodes::KeptNodes(Graph& graph, const std::function<bool(const Node&)>& stays)
    : graph_(graph), own_(graph.outputs.size()) {
  const flow::Flow flow = flow::flow_of(graph);
  std::set<const Node*> staying;
  for (const auto& node : graph.nodes()) {
    if (!stays(*node)) continue;
    staying.insert(node.get());
    for (int region = flow.of(node.get()); region >= 0; region = flow.regions[region].parent)
      if (const Node* end = flow.regions[region].end) staying.insert(end);
  }
  for (const auto& node : graph.nodes()) {
    const auto result = std::find_if(node->outputs.begin(), node->outputs.end(), [](const Value* v) { return v; });
    if (result != node->outputs.end() && staying.contains(node.get()) && !graph.is_output(*result))
      graph.outputs.push_back(*result);
  }
}

}  // namespace tessera

#include "tessera/ir/kept_nodes.h"

#include <algorithm>

namespace tessera {

KeptNodes::KeptNodes(Graph& graph, const std::function<bool(const Node&)>& stays)
    : graph_(graph), own_(graph.outputs.size()) {
  for (const auto& node : graph.nodes()) {
    const auto result = std::find_if(node->outputs.begin(), node->outputs.end(), [](const Value* v) { return v; });
    if (result != node->outputs.end() && stays(*node) && !graph.is_output(*result)) graph.outputs.push_back(*result);
  }
}

}  // namespace tessera

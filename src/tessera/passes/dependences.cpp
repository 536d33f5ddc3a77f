#include "tessera/passes/dependences.h"

#include "tessera/spmd/program.h"

namespace tessera::passes {

Dependences::Dependences(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    index[node.get()] = static_cast<int>(nodes.size());
    nodes.push_back(node.get());
  }
  after.resize(nodes.size());
  for (size_t node = 0; node < nodes.size(); ++node)
    for (const Value* operand : nodes[node]->inputs)
      if (operand && operand->producer) after[index.at(operand->producer)].push_back(static_cast<int>(node));
  keep_behind_readers(graph);
  keep_messages_in_order();
}

void Dependences::keep_messages_in_order() {
  int last = -1;
  for (int node = 0; node < static_cast<int>(nodes.size()); ++node) {
    if (!nodes[node]->is("Send", spmd::kCommDomain) && !nodes[node]->is("Recv", spmd::kCommDomain)) continue;
    if (last >= 0) after[last].push_back(node);
    last = node;
  }
}

void Dependences::keep_behind_readers(const Graph& graph) {
  for (const auto& state : graph.values()) {
    if (!state->next || !state->next->producer) continue;
    const int maker = index.at(state->next->producer);
    for (const Use& use : state->uses)
      if (const int reader = index.at(use.node); reader < maker) after[reader].push_back(maker);
  }
}

}  // namespace tessera::passes

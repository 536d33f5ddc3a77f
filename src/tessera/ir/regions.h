#pragma once

#include <algorithm>

#include "tessera/ir/graph.h"

namespace tessera {

/// Visits each node of the graph after those of the graphs that it owns.
template <typename Visit>
void for_each_node(const Graph& graph, const Visit& visit) {
  for (const auto& node : graph.nodes()) {
    for (const Graph* region : node->regions()) for_each_node(*region, visit);
    visit(*node);
  }
}

/// The same of the model's graph and its functions.
template <typename Visit>
void for_each_node(const OnnxModel& model, const Visit& visit) {
  for_each_node(*model.graph, visit);
  for (const Function& function : model.functions) for_each_node(*function.body, visit);
}

/// Whether a node of the graph owns graphs (If, Loop, Scan).
inline bool has_regions(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const auto& node) { return !node->regions().empty(); });
}

/// Whether one of the model's graph or of its functions does.
inline bool has_regions(const OnnxModel& model) {
  return has_regions(*model.graph) || std::any_of(model.functions.begin(), model.functions.end(),
                                                  [](const Function& function) { return has_regions(*function.body); });
}

}  // namespace tessera

#pragma once

#include <algorithm>

#include "tessera/ir/graph.h"

namespace tessera {

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

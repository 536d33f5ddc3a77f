#include "tessera/train/autodiff.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ops/gradients/through.h"

namespace tessera::train {
namespace {

// In the graph's order. Goes back from its end until nothing that is needed is left, so that what stands before, as the
// passes of earlier micro-batches, costs nothing.
std::vector<Node*> nodes_that_make(const std::vector<Root>& roots, const Graph& graph) {
  std::set<const Node*> needed;
  const auto need = [&](const Value* value) {
    if (value && value->producer) needed.insert(value->producer);
  };
  for (const Root& root : roots) need(root.value);
  std::vector<Node*> found;
  const auto& nodes = graph.nodes();
  for (auto node = nodes.rbegin(); node != nodes.rend() && !needed.empty(); ++node) {
    if (needed.erase(node->get()) == 0) continue;
    found.push_back(node->get());
    for (const Value* operand : (*node)->inputs) need(operand);
  }
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace

std::vector<Value*> gradients(Graph& graph, const std::vector<Root>& roots, const std::vector<Value*>& of) {
  std::vector<ops::KnownGradient> known;
  for (const auto& [value, seed] : roots) {
    if (!is_float(value->dtype()) || value->rank() != 0)
      fail("gradient", "the loss '{}' is {} {}; it must be one float", value->name, name_of(value->dtype()),
           to_string(value->shape()));
    known.push_back({value, seed ? seed : graph.constant_scalar(value->dtype(), 1)});
  }
  return ops::gradients_through(graph, nodes_that_make(roots, graph), known, of);
}

}  // namespace tessera::train

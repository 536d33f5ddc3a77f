#include "tessera/spmd/presets/stored.h"

#include <algorithm>
#include <set>

namespace tessera::spmd {
namespace {

// The values that the outputs depend on.
std::set<const Value*> behind_outputs(const Graph& graph) {
  std::set<const Value*> behind(graph.outputs.begin(), graph.outputs.end());
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node)
    if (std::any_of((*node)->outputs.begin(), (*node)->outputs.end(),
                    [&](const Value* result) { return behind.contains(result); }))
      behind.insert((*node)->inputs.begin(), (*node)->inputs.end());
  return behind;
}

// Over its first dimension that has an element for each rank; else over its first.
void split_over(Sharding& sharding, const Value& state, const AxisRef& axis) {
  size_t dim = 0;
  for (size_t d = state.rank(); d-- > 0;) {
    const auto extent = state.shape()[d].constant();
    if (extent && *extent >= axis.size && sharding.dims[d].parts.size() == 1) dim = d;
  }
  sharding.dims[dim].parts.back().axes.push_back(axis);
}

}  // namespace

Storage stored_by_presets(const Graph& graph, const std::vector<PresetRequest>& requests, const Storage& ordered) {
  Storage storage;
  const std::set<const Value*> behind = behind_outputs(graph);
  for (const PresetRequest& request : requests) {
    if (request.preset->stores == Stores::nothing || request.axis.size <= 1) continue;
    for (const Value* state : graph.values_of(ValueKind::state)) {
      if (!state->has_shape() || state->rank() == 0 || ordered.contains(state)) continue;
      const bool is_optimizer = state->next && !behind.contains(state);
      if (request.preset->stores == Stores::optimizer && !is_optimizer) continue;
      Sharding& sharding = storage.try_emplace(state, Sharding::replicated(state->shape())).first->second;
      split_over(sharding, *state, request.axis);
    }
  }
  return storage;
}

void store_as_computed(Storage& storage, const Graph& graph, const std::vector<Annotation>& annotations,
                       const Storage& ordered) {
  std::map<const Value*, const Sharding*> computed;
  for (const Annotation& annotation : annotations)
    if (annotation.value->kind == ValueKind::state && !annotation.sharding.is_partial())
      computed.emplace(annotation.value, &annotation.sharding);
  // An optimizer state belongs to the parameter whose update reads it.
  std::map<const Node*, std::vector<const Value*>> stepped;  // by the node that makes the next value
  for (const Value* state : graph.values_of(ValueKind::state))
    if (state->next && state->next->producer) stepped[state->next->producer].push_back(state);
  std::map<const Value*, const Sharding*> wanted;
  for (const auto& [parameter, sharding] : computed) {
    wanted.emplace(parameter, sharding);
    if (!parameter->next) continue;
    for (const Node* update : update_of(*parameter))
      if (const auto found = stepped.find(update); found != stepped.end())
        for (const Value* state : found->second)
          if (state->type == parameter->type) wanted.emplace(state, sharding);
  }
  for (auto& [state, stored] : storage) {
    const auto found = wanted.find(state);
    if (found == wanted.end() || ordered.contains(state)) continue;
    Sharding together = *found->second;
    for (DimSharding& dim : together.dims) dim.open = false;
    for (const AxisRef& axis : stored.axes())
      if (!together.uses(axis)) split_over(together, *state, axis);
    stored = std::move(together);
  }
}

}  // namespace tessera::spmd

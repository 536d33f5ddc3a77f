#include "tessera/spmd/presets/inputs.h"

#include <algorithm>
#include <optional>
#include <set>

#include "tessera/ops/attention.h"

namespace tessera::spmd {
namespace {

// What ties to a dimension; nullopt for one of several parts, or of one element.
std::optional<int> component_of(const Layout& layout, const Value* value, int dim) {
  const auto slots = layout.of_value.find(value);
  if (slots == layout.of_value.end()) return std::nullopt;
  const std::vector<PartState>& parts = layout.slots[slots->second.front()].dims[dim].parts;
  if (parts.size() != 1 || parts.front().size.is(1)) return std::nullopt;
  return parts.front().component;
}

// Attention's queries are [batch, heads, queries, width], or [batch, queries, heads · width].
std::set<int> components_of_queries(const Layout& layout) {
  constexpr size_t kPacked = 3;
  std::set<int> components;
  for (const NodeLayout& node : layout.nodes) {
    if (!node.node->is("Attention")) continue;
    const Value* queries = node.node->input(ops::kQuery);
    const int dim = queries->rank() == kPacked ? 1 : 2;
    for (const SubFactor& sub : node.subfactors)
      for (const Place& place : sub.places)
        if (!place.result && place.tensor == ops::kQuery && place.dim == dim)
          components.insert(layout.slots[place.slot].dims[place.dim].parts[place.part].component);
  }
  return components;
}

}  // namespace

std::vector<InputDim> contexts_of(const Graph& graph, const Layout& layout) {
  const std::set<int> queries = components_of_queries(layout);
  std::vector<InputDim> found;
  for (const Value* input : graph.inputs)
    for (int dim = 0; dim < static_cast<int>(input->rank()); ++dim)
      if (const std::optional<int> component = component_of(layout, input, dim);
          component && queries.contains(*component))
        found.push_back({input, dim});
  return found;
}

void split_input(PresetContext& context, const InputDim& where) {
  const auto earlier = std::find_if(context.annotations.begin(), context.annotations.end(), [&](const Annotation& a) {
    return a.value == where.input && a.by.starts_with("preset ") && !a.sharding.uses(context.axis);
  });
  if (earlier != context.annotations.end()) {
    earlier->sharding.dims[where.dim].parts[0].axes.push_back(context.axis);
    return;
  }
  Sharding sharding = Sharding::replicated(where.input->shape());
  for (DimSharding& dim : sharding.dims) dim.open = true;
  sharding.dims[where.dim].parts[0].axes = {context.axis};
  context.annotate(where.input, std::move(sharding));
}

std::vector<AxisRef> input_axes_along(const PresetContext& context, const Value* value, int dim) {
  const std::optional<int> component = component_of(context.layout, value, dim);
  if (!component) return {};
  for (const Annotation& annotation : context.annotations) {
    if (annotation.value->kind != ValueKind::input) continue;
    for (size_t d = 0; d < annotation.sharding.dims.size(); ++d)
      if (component_of(context.layout, annotation.value, static_cast<int>(d)) == component)
        return annotation.sharding.dims[d].parts[0].axes;
  }
  return {};
}

}  // namespace tessera::spmd

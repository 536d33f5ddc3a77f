#include "tessera/spmd/presets/whole_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "tessera/spmd/decide/wishes.h"
#include "tessera/spmd/presets/pairs.h"

namespace tessera::spmd {
namespace {

constexpr double kWorthAWarning = 1;  // per cent of the parameters' bytes

bool is_annotated_by_others(const PresetContext& context, const Value* weight) {
  return std::any_of(context.annotations.begin(), context.annotations.end(), [&](const Annotation& annotation) {
    return annotation.value == weight && annotation.by != context.by;
  });
}

// Whether the operator could compute with a part of that operand.
bool is_splittable(const NodeLayout& node, size_t operand) {
  return std::any_of(node.subfactors.begin(), node.subfactors.end(), [&](const SubFactor& sub) {
    return sub.splittable && !sub.size.is(1) &&
           std::any_of(sub.places.begin(), sub.places.end(),
                       [&](const Place& place) { return !place.result && place.tensor == static_cast<int>(operand); });
  });
}

// The states that some operator uses in parts over the axis, not those that are only placed elsewhere.
std::set<const Value*> used_in_parts(const PresetContext& context, const Decisions& decisions) {
  std::set<const Value*> values;
  for (size_t n = 0; n < context.layout.nodes.size(); ++n)
    for_each_operand(context.layout.nodes[n], decisions.nodes[n], [&](const Value* value, const Sharding& sharding) {
      if (value->kind == ValueKind::state && sharding.uses(context.axis)) values.insert(value);
    });
  return values;
}

std::string reason(const PresetContext& context, const MegatronPlan& plan, const Value* weight) {
  if (auto refused = plan.refused.find(weight); refused != plan.refused.end()) return refused->second;
  for (const NodeLayout& node : context.layout.nodes)
    for (size_t i = 0; i < node.node->inputs.size(); ++i)
      if (node.node->inputs[i] == weight)
        return node.node->label() +
               (is_splittable(node, i)
                    ? ", which reads it, is neither a product with an activation nor a lookup or a head"
                    : " needs it whole");
  return "no operator reads it";
}

}  // namespace

void remark_on_whole_weights(const PresetContext& context, const Decisions& decisions) {
  double all = 0, whole = 0, most = 0, stored_whole = 0, most_stored = 0;
  std::vector<std::string> axes;  // of the largest state that is stored without the preset's axis
  const Value* largest = nullptr;
  const std::set<const Value*> split = used_in_parts(context, decisions);
  for (const Value* weight : context.graph.values_of(ValueKind::state)) {
    const auto stored = decisions.sources.find(weight);
    const auto bytes = static_cast<double>(weight->data.bytes);
    all += bytes;
    if (const auto ordered = context.storage.find(weight); ordered != context.storage.end()) {
      if (ordered->second.uses(context.axis)) continue;
      stored_whole += bytes;
      if (bytes > most_stored) {
        most_stored = bytes;
        axes.clear();
        for (const AxisRef& axis : ordered->second.axes()) axes.push_back(axis.axis);
      }
      continue;
    }
    if (stored == decisions.sources.end() || stored->second.uses(context.axis) || split.contains(weight)) continue;
    if (is_annotated_by_others(context, weight)) continue;
    whole += bytes;
    if (weight->rank() < 2 || bytes <= most) continue;
    most = bytes;
    largest = weight;
  }
  if (context.axis.size == 1) return;
  if (const double share = 100 * stored_whole / all; share >= kWorthAWarning) {
    axes.push_back(context.axis.axis);
    context.notes.push_back(
        fmt::format("{}: {:.3g} % of the parameters' bytes are stored without the axis {}, as requested, so all of "
                    "its ranks hold the same parts between runs; `storage` '*=[{{{}}},...]' would split these, too",
                    context.by, share, context.axis.axis, fmt::join(axes, ",")));
  }
  if (!largest) return;
  const double share = 100 * whole / all;
  const std::string text =
      fmt::format("{}: {:.3g} % of the parameters' bytes stay whole on every rank of {}; the largest is '{}' {}: {}",
                  context.by, share, context.axis.axis, largest->name, to_string(largest->shape()),
                  reason(context, find_megatron(context), largest));
  (share < kWorthAWarning ? context.notes : context.warnings).push_back(text);
}

}  // namespace tessera::spmd

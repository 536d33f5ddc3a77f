#include "tessera/spmd/layout/attach.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"

namespace tessera::spmd {
namespace {

// A dimension annotated as one part, [-, tp]: the axes go to the major-most parts that operators can split. An axis
// with more ranks than a part, if the part divides it, continues as a sub-axis on the next part: tp=4 on 2·4·16 is
// 2{tp:(1)2}·4{tp:(2)2}·16.
void attach_simple(DimState& dim, std::vector<AxisRef> axes, const std::vector<bool>& blocked, const Origin& origin) {
  std::vector<PartState*> candidates;
  for (PartState& part : dim.parts)
    if (!blocked[part.component] && !part.size.is(1)) candidates.push_back(&part);
  if (candidates.empty())
    for (PartState& part : dim.parts) candidates.push_back(&part);
  size_t at = 0;
  int64_t used = 1;  // ranks already on the current part
  for (size_t i = 0; i < axes.size(); ++i) {
    AxisRef axis = axes[i];
    auto units = candidates[at]->size.constant();
    if (units && used == *units && at + 1 < candidates.size()) {
      ++at;
      used = 1;
      units = candidates[at]->size.constant();
    }
    int64_t left = units ? *units / used : 0;
    if (units && left > 1 && axis.size > left && axis.size % left == 0 && *units % used == 0 &&
        at + 1 < candidates.size()) {
      axes.insert(axes.begin() + static_cast<long>(i) + 1, AxisRef{axis.axis, axis.pre * left, axis.size / left});
      axis.size = left;
    }
    candidates[at]->axes.push_back(axis);
    candidates[at]->origins.push_back(origin);
    used *= axis.size;
  }
}

PartState& part_at(Layout& layout, const Place& place) {
  return layout.slots[place.slot].dims[place.dim].parts[place.part];
}

bool is_free_for(Layout& layout, const Place& place, const AxisRef& axis) {
  const Slot& slot = layout.slots[place.slot];
  return part_at(layout, place).axes.empty() && slot.dims[place.dim].open && !slot.uses(axis) &&
         !slot.is_placed_along(axis);
}

/// Whether splitting the subfactor makes this result a partial sum.
bool sums_up(const NodeLayout& node, const SubFactor& sub, int result, Reduction reduction) {
  const ops::Factor& factor = node.rule.factors[sub.factor];
  return sub.splittable && !sub.size.is(1) && factor.makes_partial() && factor.reduction == reduction &&
         std::none_of(sub.places.begin(), sub.places.end(),
                      [&](const Place& place) { return place.result && place.tensor == result; });
}

/// Makes the value a partial sum over the axis: splits a dimension that its node reduces or, if the node only passes
/// sums on, one further up; unless a reduced dimension is split over the axis already. False if neither is possible.
/// `seen`: values that were tried.
bool attach_sum(Layout& layout, const Value* value, const PartialAxis& wanted, const std::string& by,
                std::set<const Value*>& seen) {
  if (!value->producer || !seen.insert(value).second) return false;
  const NodeLayout* node = &layout.of(value->producer);
  const auto& results = node->node->outputs;
  const auto result = static_cast<int>(std::find(results.begin(), results.end(), value) - results.begin());
  const auto is_split = [&](const Place& place) {
    const auto& axes = part_at(layout, place).axes;
    return std::any_of(axes.begin(), axes.end(), [&](const AxisRef& axis) { return axis.overlaps(wanted.axis); });
  };
  const auto is_free = [&](const Place& place) { return is_free_for(layout, place, wanted.axis); };
  const SubFactor* free = nullptr;
  for (const SubFactor& sub : node->subfactors) {
    if (!sums_up(*node, sub, result, wanted.reduction)) continue;
    if (std::any_of(sub.places.begin(), sub.places.end(), is_split)) return true;
    if (!free && std::all_of(sub.places.begin(), sub.places.end(), is_free)) free = &sub;
  }
  if (free) {
    for (const Place& place : free->places) {
      part_at(layout, place).axes.push_back(wanted.axis);
      part_at(layout, place).origins.push_back({by, 0});
      layout.slots[place.slot].annotated = true;
    }
    return true;
  }
  bool any = false;
  for (const ops::PartialSet& set : node->rule.partials) {
    if (set.reduction != wanted.reduction || any) continue;
    for (int operand : set.operands)  // all of which must be sums
      if (const Value* input = node->node->input(operand)) any |= attach_sum(layout, input, wanted, by, seen);
  }
  return any;
}

}  // namespace

void attach(Layout& layout, const Annotation& annotation, const Mesh& mesh, std::vector<std::string>& approximated) {
  auto found = layout.of_value.find(annotation.value);
  if (found == layout.of_value.end()) return;
  for (int index : found->second) {
    Slot& slot = layout.slots[index];
    for (size_t d = 0; d < annotation.sharding.dims.size(); ++d) {
      const DimSharding& wanted = annotation.sharding.dims[d];
      DimState& dim = slot.dims[d];
      bool taken = !dim.open || std::any_of(dim.parts.begin(), dim.parts.end(),
                                            [](const PartState& part) { return !part.axes.empty(); });
      if (taken) continue;  // an earlier annotation decides
      std::vector<AxisRef> axes;
      for (const Part& part : wanted.parts)
        for (const AxisRef& axis : part.axes)
          if (axis.size > 1) axes.push_back(axis);
      bool clash = std::any_of(axes.begin(), axes.end(),
                               [&](const AxisRef& axis) { return slot.uses(axis) || slot.is_placed_along(axis); });
      if (clash) continue;
      dim.open = wanted.open;
      slot.annotated |= !wanted.open || !axes.empty();
      if (axes.empty()) continue;
      Origin origin{annotation.by, 0};
      if (wanted.parts.size() == 1) {
        attach_simple(dim, axes, layout.blocked, origin);
        continue;
      }
      DimSharding have;
      for (const PartState& part : dim.parts) have.parts.push_back({part.size, {}});
      auto refined = refine(wanted, boundaries(have));
      auto same_size = [](const Part& part, const Part& other) { return part.size == other.size; };
      if (!refined ||
          !std::equal(refined->parts.begin(), refined->parts.end(), have.parts.begin(), have.parts.end(), same_size)) {
        std::string text;
        for (const PartState& part : dim.parts) text += (text.empty() ? "" : "*") + part.size.str();
        if (annotation.optional) {
          attach_simple(dim, axes, layout.blocked, origin);
          const std::string line = fmt::format(
              "{}: '{}' cannot have the layout {}, because the operators around it treat dimension {} as {}; it is "
              "split "
              "into blocks there",
              annotation.by, annotation.value->name, annotation.sharding.str(mesh), d, text);
          if (approximated.empty() || approximated.back() != line) approximated.push_back(line);
          continue;
        }
        fail("annotate",
             "'{}': dimension {} is split as {}, but the operators around it see the parts {}; put the axes on those "
             "parts, or name only the axis, and Tessera finds the part",
             annotation.value->name, d, annotation.sharding.str(mesh), text);
      }
      for (size_t p = 0; p < dim.parts.size(); ++p) {
        dim.parts[p].axes = refined->parts[p].axes;
        dim.parts[p].origins.assign(dim.parts[p].axes.size(), origin);
      }
    }
  }
}

void attach_sums(Layout& layout, const Annotation& annotation) {
  for (const PartialAxis& wanted : annotation.sharding.partial) {
    std::set<const Value*> seen;
    if (wanted.axis.size > 1) attach_sum(layout, annotation.value, wanted, annotation.by, seen);
  }
}

}  // namespace tessera::spmd

#include "tessera/spmd/decide/wishes.h"

#include <algorithm>
#include <optional>

namespace tessera::spmd {

std::optional<std::vector<std::vector<AxisRef>>> axes_for(const Layout& layout, const NodeLayout& node,
                                                          const Sharding& wanted) {
  const Slot& slot = layout.slots[node.result_slots[0]];
  const Sharding cut = slot.sharding();
  if (wanted.dims.size() != cut.dims.size()) return std::nullopt;
  std::vector<DimSharding> dims;
  for (size_t d = 0; d < cut.dims.size(); ++d) {
    const auto dim = refine(wanted.dims[d], boundaries(cut.dims[d]));
    if (!dim || dim->parts.size() != cut.dims[d].parts.size()) return std::nullopt;
    dims.push_back(*dim);
  }
  std::vector<std::vector<AxisRef>> axes(node.subfactors.size());
  for (size_t s = 0; s < axes.size(); ++s)
    for (const Place& place : node.subfactors[s].places)
      if (place.result && node.subfactors[s].splittable) axes[s] = dims[place.dim].parts[place.part].axes;
  if (!same_layout(laid_out(layout, node, axes, true, 0), wanted)) return std::nullopt;
  return axes;
}

namespace {

bool is_free_to_move(const Layout& layout, const Value* value, const ValueSet& fetched) {
  const NodeLayout& maker = layout.of(value->producer);
  if (maker.moves < ops::Moves::all || !maker.node->inputs[0]->producer || fetched.contains(value)) return false;
  const Slot& slot = layout.slots[layout.output_slot(value)];
  return !slot.annotated && !slot.stored;
}

}  // namespace

std::vector<Level> way_up(const Layout& layout, const Value* value, const Sharding& wanted, const ValueSet& fetched) {
  std::vector<Level> way;
  if (!value->producer || wanted.is_partial()) return way;
  way.push_back({value, wanted, {}});
  while (is_free_to_move(layout, value, fetched)) {
    const NodeLayout& movement = layout.of(value->producer);
    auto axes = axes_for(layout, movement, way.back().wanted);
    if (!axes) break;
    Sharding before = laid_out(layout, movement, *axes, false, 0);
    way.back().axes = std::move(*axes);
    way.push_back({value = movement.node->inputs[0], std::move(before), {}});
  }
  return way;
}

Wishes::Wishes(const Graph& graph, const Layout& layout, const Decisions& decisions)
    : layout_(layout), fetched_(decisions.fetched) {
  const auto leaves = [this](const Value* value, const Sharding& wanted) { add(nullptr, value, wanted); };
  for_each_leaf(graph, decisions, leaves);
  for (size_t n = layout.nodes.size(); n-- > 0;) {
    const Node* node = layout.nodes[n].node;
    const auto is_used = [&](const Value* value, const Sharding& wanted) { add(node, value, wanted); };
    if (!passed_.contains(node)) for_each_operand(layout.nodes[n], decisions.nodes[n], is_used);
  }
}

void Wishes::add(const Node* user, const Value* value, const Sharding& wanted) {
  const std::vector<Level> way = way_up(layout_, value, wanted, fetched_);
  const Passed* passed = &chains_.emplace_back(Passed{user, nullptr});
  for (size_t i = 0; i < way.size(); ++i) {
    std::vector<Wish>& wishes = wishes_[way[i].value];
    const auto known = std::find_if(wishes.begin(), wishes.end(),
                                    [&](const Wish& wish) { return same_layout(wish.layout, way[i].wanted); });
    if (known == wishes.end())
      wishes.push_back({way[i].wanted, {passed}});
    else
      known->uses.push_back(passed);
    if (i + 1 == way.size()) break;
    passed_.insert(way[i].value->producer);
    passed = &chains_.emplace_back(Passed{way[i].value->producer, passed});
  }
}

bool Wishes::Wish::is_of_others(const Node* node) const {
  return std::any_of(uses.begin(), uses.end(), [&](const Passed* at) {
    while (at && at->node != node) at = at->before;
    return !at;
  });
}

const std::vector<Wishes::Wish>& Wishes::of(const Value* value) const {
  static const std::vector<Wish> none;
  const auto* known = wishes_.find(value);
  return known ? *known : none;
}

const Wishes::Wish* Wishes::find(const Value* value, const Sharding& layout) const {
  const std::vector<Wish>& wishes = of(value);
  const auto known =
      std::find_if(wishes.begin(), wishes.end(), [&](const Wish& wish) { return same_layout(wish.layout, layout); });
  return known == wishes.end() ? nullptr : &*known;
}

int Wishes::uses(const Value* value, const Sharding& layout) const {
  const Wish* wish = find(value, layout);
  return wish ? static_cast<int>(wish->uses.size()) : 0;
}

bool Wishes::is_wanted_beside(const Node* node, const Value* value, const Sharding& layout) const {
  const Wish* wish = find(value, layout);
  return wish && wish->is_of_others(node);
}

}  // namespace tessera::spmd

#include "tessera/spmd/layout/layout.h"

#include <algorithm>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/ir/flow.h"
#include "tessera/ir/tensor.h"
#include "tessera/spmd/program.h"

namespace tessera::spmd {

double hinted(const Expr& expr, const Hints& hints) {
  constexpr int64_t kUnbound = 16;
  return static_cast<double>(expr.evaluate([&](std::string_view name) -> std::optional<int64_t> {
    if (name.starts_with('@')) return 0;
    auto found = hints.find(name);
    return found == hints.end() ? kUnbound : found->second;
  }));
}

Sharding Slot::sharding() const {
  Sharding sharding;
  for (const DimState& dim : dims) {
    DimSharding split;
    for (const PartState& part : dim.parts) split.parts.push_back({part.size, part.axes});
    sharding.dims.push_back(std::move(split));
  }
  sharding.at = at;
  return sharding;
}

int subfactor_along(const NodeLayout& node, size_t operand, size_t dim, size_t part) {
  for (size_t s = 0; s < node.subfactors.size(); ++s)
    for (const Place& place : node.subfactors[s].places)
      if (!place.result && place.tensor == static_cast<int>(operand) && place.dim == static_cast<int>(dim) &&
          place.part == static_cast<int>(part))
        return static_cast<int>(s);
  return -1;
}

size_t first_result(const NodeLayout& node) {
  const auto found =
      std::find_if(node.result_slots.begin(), node.result_slots.end(), [](int slot) { return slot >= 0; });
  check(found != node.result_slots.end(), "a node has a result");
  return static_cast<size_t>(found - node.result_slots.begin());
}

Sharding without_factors(Sharding result, const NodeLayout& node, const std::vector<int>& factors) {
  const size_t first = first_result(node);
  std::set<int> gone(factors.begin(), factors.end());
  for (int factor : factors) gone.insert(node.rule.factors[factor].flat.begin(), node.rule.factors[factor].flat.end());
  std::set<std::pair<int, int>> found;  // removed factors, with the dimensions in which they have parts
  for (const SubFactor& sub : node.subfactors)
    for (const Place& place : sub.places)
      if (place.result && place.tensor == static_cast<int>(first) && gone.contains(sub.factor)) {
        result.dims[place.dim].parts[place.part] = Part{1, {}};
        found.emplace(sub.factor, place.dim);
      }
  // A dimension may also have parts of factors that stay. These parts remain if they do not overlap those of removed
  // factors: channels 2{x}·2·3 in groups 2{x}·6 become 2{x} without the channels. Otherwise the dimension is whole.
  for (size_t d = 0; d < result.dims.size(); ++d) {
    Expr left = 1;
    bool in_other_parts = false;
    for (int factor : node.rule.results[first][d]) {
      const Expr& size = node.rule.factors[factor].size;
      if (!gone.contains(factor))
        left = left * size;
      else
        in_other_parts |= !size.is(1) && !found.contains({factor, static_cast<int>(d)});
    }
    if (!in_other_parts) continue;
    DimSharding kept{std::vector<Part>(result.dims[d].parts.size(), Part{1, {}})};
    for (const SubFactor& sub : node.subfactors)
      for (const Place& place : sub.places)
        if (place.result && place.tensor == static_cast<int>(first) && place.dim == static_cast<int>(d) &&
            !gone.contains(sub.factor))
          kept.parts[place.part] = result.dims[d].parts[place.part];
    result.dims[d].parts = kept.size() == left ? kept.parts : std::vector<Part>{Part{left, {}}};
  }
  for (DimSharding& dim : result.dims) dim = canonical(dim);
  return result;
}

std::vector<AxisRef> axes_along(const NodeLayout& node, const std::vector<std::vector<AxisRef>>& axes,
                                const std::vector<int>& factors) {
  std::vector<AxisRef> all;
  for (int factor : factors)
    for (size_t s = 0; s < node.subfactors.size(); ++s)
      if (node.subfactors[s].factor == factor) all.insert(all.end(), axes[s].begin(), axes[s].end());
  return all;
}

bool overlaps(const std::vector<PlacedAxis>& place, const AxisRef& axis) {
  return std::any_of(place.begin(), place.end(), [&](const PlacedAxis& entry) { return entry.axis.overlaps(axis); });
}

bool Slot::is_placed_along(const AxisRef& axis) const {
  return overlaps(at, axis);
}

bool Slot::uses(const AxisRef& axis) const {
  for (const DimState& dim : dims)
    for (const PartState& part : dim.parts)
      for (const AxisRef& used : part.axes)
        if (used.overlaps(axis)) return true;
  return false;
}

namespace {

bool has_layout(const Value* value) {
  return value && value->has_shape();
}

// The nodes that use a carried value in its own layout, besides the Carry that makes it.
bool ties_carried(const Node& node) {
  return flow::is(node, "Next") || flow::is(node, "Last");
}

bool is_source(const Value& value) {
  return value.producer == nullptr;
}

// Suffix products strictly inside a dimension, ascending; each divides the next.
using Cuts = std::vector<Expr>;

bool add_cut(Cuts& cuts, const Expr& size, const Expr& cut) {
  if (cut.is(1) || cut.is(0) || cut == size || !Expr::exact_divide(size, cut)) return false;
  size_t at = 0;
  for (; at < cuts.size(); ++at) {
    if (cuts[at] == cut) return false;
    if (Expr::exact_divide(cuts[at], cut)) break;
    if (!Expr::exact_divide(cut, cuts[at])) return false;
  }
  for (size_t after = at; after < cuts.size(); ++after)
    if (!Expr::exact_divide(cuts[after], cut)) return false;
  cuts.insert(cuts.begin() + static_cast<long>(at), cut);
  return true;
}

// The cuts of a dimension that fall inside the factor whose minor neighbours multiply to `base`, relative to it.
Cuts relative(const Cuts& cuts, const Expr& base, const Expr& size) {
  Cuts inside;
  for (const Expr& cut : cuts) {
    auto part = Expr::exact_divide(cut, base);
    if (part && !part->is(1) && !(*part == size) && Expr::exact_divide(size, *part)) inside.push_back(*part);
  }
  return inside;
}

}  // namespace

Layout::Layout(const Graph& graph, const Hints& hints, const std::multimap<const Value*, Sharding>& cuts,
               const Places& places, const Storage& storage, const std::set<const Node*>& finer) {
  make_slots(graph, hints, places, storage, finer);
  refine(cuts);
  align();
  connect();
}

void Layout::narrow_sums() {
  for (NodeLayout& node : nodes) node.wide_sums = false;
}

void Layout::make_slots(const Graph& graph, const Hints& hints, const Places& places, const Storage& storage,
                        const std::set<const Node*>& finer) {
  const std::set<const Node*> updates = updates_of(graph, storage);
  const ValueSet fetched = fetched_values(graph, storage);
  std::map<const Value*, int> beyond;  // of results: the slot for readers across the border of an update
  auto add = [&](const Value* value, const std::vector<PlacedAxis>& at) {
    if (const auto dims = constants_of(value->shape())) require_countable(value->dtype(), *dims, value->name);
    Slot slot;
    slot.value = value;
    slot.at = at;
    for (const Expr& extent : value->shape()) slot.dims.push_back({{PartState{extent, {}, {}, -1}}, true});
    slot.bytes = hinted(product(value->shape()), hints) * bits_of(value->dtype()) / 8;
    slots.push_back(std::move(slot));
    int index = static_cast<int>(slots.size()) - 1;
    of_value[value].push_back(index);
    return index;
  };
  for (const auto& node : graph.nodes()) {
    NodeLayout layout;
    layout.node = node.get();
    const ops::OpDef& op = ops::op_of(*node);
    layout.op = &op;
    layout.moves = ops::moves_of(*node);
    layout.rule = finer.contains(node.get()) && op.finer_rule ? op.finer_rule(*node) : op.rule(*node);
    if (auto place = places.find(node.get()); place != places.end()) layout.at = place->second;
    layout.updates = updates.contains(node.get());
    layout.wide_sums = op.wide_sums;
    for (const Value* operand : node->inputs) {
      if (!has_layout(operand)) {
        layout.operand_slots.push_back(-1);
      } else if (is_source(*operand)) {
        layout.operand_slots.push_back(add(operand, layout.at));
      } else if (const int made = of_value.at(operand).front(); layout.updates == updates.contains(operand->producer)) {
        layout.operand_slots.push_back(made);
      } else {
        auto [known, fresh] = beyond.try_emplace(operand, -1);
        if (fresh) {
          known->second = add(operand, slots[made].at);
          if (!layout.updates && !fetched.contains(operand)) borders.emplace_back(made, known->second);
        }
        layout.operand_slots.push_back(known->second);
      }
    }
    for (const Value* result : node->outputs) layout.result_slots.push_back(result ? add(result, layout.at) : -1);
    layout.rule.operands.resize(node->inputs.size());
    layout.rule.results.resize(node->outputs.size());
    if (node->number >= index_of_.size()) index_of_.resize(node->number + 1);
    index_of_[node->number] = nodes.size();
    nodes.push_back(std::move(layout));
  }
  for (const Value* value : graph.inputs)
    if (!of_value.contains(value)) add(value, {});
  for (const Value* value : graph.outputs)
    if (!of_value.contains(value) && has_layout(value)) add(value, {});
}

namespace {

// Every (slot, dimension, factors) of a node.
template <typename Visit>
void for_each_dim(const NodeLayout& layout, Visit visit) {
  auto side = [&](const std::vector<std::vector<ops::DimFactors>>& tensors, const std::vector<int>& slots,
                  bool result) {
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (slots[t] < 0) continue;
      for (size_t d = 0; d < tensors[t].size(); ++d)
        if (!tensors[t][d].empty()) visit(result, static_cast<int>(t), slots[t], static_cast<int>(d), tensors[t][d]);
    }
  };
  side(layout.rule.operands, layout.operand_slots, false);
  side(layout.rule.results, layout.result_slots, true);
}

Expr base_of(const ops::Rule& rule, const ops::DimFactors& factors, size_t position) {
  Expr base = 1;
  for (size_t k = position + 1; k < factors.size(); ++k) base = base * rule.factors[factors[k]].size;
  return base;
}

}  // namespace

void Layout::refine(const std::multimap<const Value*, Sharding>& cuts) {
  std::vector<std::vector<Cuts>> of_slot(slots.size());
  for (size_t s = 0; s < slots.size(); ++s) of_slot[s].resize(slots[s].dims.size());
  auto size_of = [&](int slot, int dim) { return slots[slot].value->shape()[dim]; };
  for (const auto& [value, sharding] : cuts) {
    if (!of_value.contains(value)) continue;
    for (int slot : of_value.at(value))
      for (size_t d = 0; d < sharding.dims.size(); ++d)
        for (const Expr& cut : boundaries(sharding.dims[d]))
          add_cut(of_slot[slot][d], size_of(slot, static_cast<int>(d)), cut);
  }
  auto visit_node = [&](const NodeLayout& layout) {
    bool changed = false;
    std::vector<Cuts> of_factor(layout.rule.factors.size());
    for_each_dim(layout, [&](bool, int, int slot, int dim, const ops::DimFactors& factors) {
      for (size_t k = 0; k < factors.size(); ++k) {
        const ops::Factor& factor = layout.rule.factors[factors[k]];
        if (!factor.can_be_split() || ops::traits_of(factor.kind).by_window) continue;
        for (const Expr& cut : relative(of_slot[slot][dim], base_of(layout.rule, factors, k), factor.size))
          add_cut(of_factor[factors[k]], factor.size, cut);
      }
    });
    for_each_dim(layout, [&](bool, int, int slot, int dim, const ops::DimFactors& factors) {
      for (size_t k = 0; k < factors.size(); ++k) {
        Expr base = base_of(layout.rule, factors, k);
        changed |= add_cut(of_slot[slot][dim], size_of(slot, dim), base);
        for (const Expr& cut : of_factor[factors[k]])
          changed |= add_cut(of_slot[slot][dim], size_of(slot, dim), base * cut);
      }
    });
    return changed;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const NodeLayout& layout : nodes) changed |= visit_node(layout);
    for (auto layout = nodes.rbegin(); layout != nodes.rend(); ++layout) changed |= visit_node(*layout);
  }
  for (size_t s = 0; s < slots.size(); ++s)
    for (size_t d = 0; d < slots[s].dims.size(); ++d) {
      std::vector<PartState> parts;
      Expr minor = 1;
      for (const Expr& cut : of_slot[s][d]) {
        parts.insert(parts.begin(), PartState{*Expr::exact_divide(cut, minor), {}, {}, -1});
        minor = cut;
      }
      auto major = Expr::exact_divide(size_of(static_cast<int>(s), static_cast<int>(d)), minor);
      parts.insert(parts.begin(), PartState{major ? *major : Expr(1), {}, {}, -1});
      slots[s].dims[d].parts = std::move(parts);
    }
}

namespace {

// Parts of a dimension that make up each of its factors, as [first, last) per factor; empty if they do not line up.
std::vector<std::pair<int, int>> line_up(const std::vector<PartState>& parts, const ops::Rule& rule,
                                         const ops::DimFactors& factors) {
  if (factors.size() == 1) return {{0, static_cast<int>(parts.size())}};
  std::vector<std::pair<int, int>> ranges(factors.size());
  int end = static_cast<int>(parts.size());
  for (size_t k = factors.size(); k-- > 0;) {
    Expr wanted = rule.factors[factors[k]].size, have = 1;
    int begin = end;
    while (begin > 0 && !(have == wanted)) have = have * parts[--begin].size;
    if (!(have == wanted)) return {};
    ranges[k] = {begin, end};
    end = begin;
  }
  if (end != 0) return {};
  return ranges;
}

}  // namespace

void Layout::align() {
  for (NodeLayout& layout : nodes) {
    std::vector<std::vector<Expr>> reference(layout.rule.factors.size());  // part sizes of each factor, major to minor
    std::vector<int> first(layout.rule.factors.size(), -1);                // its first subfactor
    // Two tensors may have incompatible cuts (3·4 and 4·3), and a part of one element may be missing from a product. A
    // factor that runs along both must then be whole, since no split of one is a split of the other.
    std::vector<bool> misaligned(layout.rule.factors.size(), false);
    for_each_dim(layout, [&](bool result, int tensor, int slot, int dim, const ops::DimFactors& factors) {
      const auto& parts = slots[slot].dims[dim].parts;
      auto ranges = line_up(parts, layout.rule, factors);
      if (ranges.empty())
        for (int f : factors) misaligned[f] = true;
      for (size_t k = 0; k < ranges.size(); ++k) {
        int f = factors[k];
        auto [begin, end] = ranges[k];
        std::vector<Expr> sizes;
        for (int p = begin; p < end; ++p) sizes.push_back(parts[p].size);
        const ops::Factor& factor = layout.rule.factors[f];
        const ops::FactorTraits& traits = ops::traits_of(factor.kind);
        if (traits.by_window && sizes.size() == 1) sizes = {factor.size};  // operands have extents of their own
        if (sizes.empty()) {                                               // a factor of one element
          misaligned[f] = true;
          continue;
        }
        if (first[f] < 0) {
          first[f] = static_cast<int>(layout.subfactors.size());
          reference[f] = sizes;
          // Messages between neighbours have no place of their own (spmd/specialize).
          const bool can_be_split =
              factor.can_be_split() && (!traits.by_window || (layout.at.empty() && sizes.size() == 1));
          for (size_t i = 0; i < sizes.size(); ++i)
            layout.subfactors.push_back(
                {f, static_cast<int>(i), sizes[i], can_be_split && (!traits.one_interval || i == 0), {}});
        }
        // The major-most pieces may print differently (Min(512, s) against s) and still be the same extent.
        bool same =
            sizes.size() == reference[f].size() && std::equal(sizes.begin() + 1, sizes.end(), reference[f].begin() + 1);
        if (!same) {
          misaligned[f] = true;
          continue;
        }
        for (int p = begin; p < end; ++p)
          layout.subfactors[first[f] + p - begin].places.push_back({result, tensor, slot, dim, p});
      }
    });
    for (SubFactor& sub : layout.subfactors)
      if (misaligned[sub.factor]) sub.splittable = false;
  }
  tie_carried();
}

// A carried value has one layout in all iterations, so it is split only where all of its nodes can split it.
void Layout::tie_carried() {
  for (const NodeLayout& carry : nodes) {
    if (!flow::is(*carry.node, "Carry")) continue;
    std::vector<SubFactor*> tied;
    std::map<std::pair<int, int>, std::vector<SubFactor*>> along;  // by dimension and part of the carried value
    size_t tensors = 0;
    const auto visit = [&](const Node* node) {
      ++tensors;
      for (SubFactor& sub : nodes[index_of(node)].subfactors)
        for (const Place& place : sub.places)
          if (place.slot == carry.result_slots[0]) along[{place.dim, place.part}].push_back(&sub);
    };
    visit(carry.node);
    for (const Use& use : carry.node->outputs[0]->uses)
      if (ties_carried(*use.node)) visit(use.node);
    for (auto& [part, subs] : along) {
      const bool all = subs.size() == tensors &&
                       std::all_of(subs.begin(), subs.end(), [](const SubFactor* sub) { return sub->splittable; });
      if (!all)
        for (SubFactor* sub : subs) sub->splittable = false;
    }
  }
}

const Node* Layout::carry_of(const Node& node) {
  if (!ties_carried(node)) return nullptr;
  const Value* carried = node.input(flow::is(node, "Next") ? 2 : 0);
  return carried && carried->producer && flow::is(*carried->producer, "Carry") ? carried->producer : nullptr;
}

void Layout::connect() {
  std::vector<int> parent;
  auto root = [&](int c) {
    while (parent[c] != c) c = parent[c] = parent[parent[c]];
    return c;
  };
  for (Slot& slot : slots)
    for (DimState& dim : slot.dims)
      for (PartState& part : dim.parts) {
        part.component = static_cast<int>(parent.size());
        parent.push_back(part.component);
      }
  auto at = [&](const Place& place) -> PartState& { return slots[place.slot].dims[place.dim].parts[place.part]; };
  for (const NodeLayout& layout : nodes)
    for (const SubFactor& sub : layout.subfactors)
      if (sub.splittable)
        for (const Place& place : sub.places) parent[root(at(place).component)] = root(at(sub.places[0]).component);
  for (Slot& slot : slots)
    for (DimState& dim : slot.dims)
      for (PartState& part : dim.parts) part.component = root(part.component);
  blocked.assign(parent.size(), false);
  for (const NodeLayout& layout : nodes)
    for (const SubFactor& sub : layout.subfactors)
      if (!sub.splittable || ops::traits_of(layout.rule.factors[sub.factor].kind).by_window)
        for (const Place& place : sub.places) blocked[at(place).component] = true;
  for (const NodeLayout& layout : nodes)
    for (size_t t = 0; t < layout.rule.operands.size(); ++t) {
      if (layout.operand_slots[t] < 0) continue;
      auto& dims = slots[layout.operand_slots[t]].dims;
      for (size_t d = 0; d < dims.size(); ++d)
        if (d >= layout.rule.operands[t].size() || layout.rule.operands[t][d].empty())
          for (const PartState& part : dims[d].parts)
            if (!part.size.is(1)) blocked[part.component] = true;
    }
}

ValueSet ordered_states(const Layout& layout) {
  ValueSet ordered;
  for (const auto& [value, slots] : layout.of_value)
    if (value->kind == ValueKind::state && layout.slots[slots.front()].annotated) ordered.insert(value);
  for (const NodeLayout& node : layout.nodes)
    if (node.moves >= ops::Moves::all && ordered.contains(node.node->inputs[0])) ordered.insert(node.node->outputs[0]);
  return ordered;
}

Sharding laid_out(const Layout& layout, const NodeLayout& node, const std::vector<std::vector<AxisRef>>& axes,
                  bool result, size_t tensor) {
  Sharding sharding = layout.slots[result ? node.result_slots[tensor] : node.operand_slots[tensor]].sharding();
  sharding.at = node.at;
  for (DimSharding& dim : sharding.dims)
    for (Part& part : dim.parts) part.axes.clear();
  for (size_t s = 0; s < node.subfactors.size(); ++s)
    for (const Place& place : node.subfactors[s].places)
      if (place.result == result && place.tensor == static_cast<int>(tensor))
        sharding.dims[place.dim].parts[place.part].axes = axes[s];
  return sharding;
}

}  // namespace tessera::spmd

#include "tessera/spmd/decide/nodes.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/spmd/decide/partial_terms.h"
#include "tessera/spmd/decide/versions.h"
#include "tessera/spmd/program.h"
#include "tessera/spmd/reshard/reshard.h"

namespace tessera::spmd {
namespace {

// What a choice costs: orders come before bytes.
struct Cost {
  int disobeyed = 0;  // annotated results that are computed in another layout
  int gathered = 0;   // annotated states that are not used as they lie
  double bytes = 0;   // that move

  auto operator<=>(const Cost&) const = default;
  Cost& operator+=(const Cost& other) {
    disobeyed += other.disobeyed;
    gathered += other.gathered;
    bytes += other.bytes;
    return *this;
  }
};
constexpr Cost kWorst{std::numeric_limits<int>::max(), 0, 0};

// What two shardings of one value have in common: per part the common prefix of axes; whole where parts do not line up;
// everywhere along axes of which they name different indices.
Sharding meet(const Sharding& a, const Sharding& b) {
  Sharding result = a;
  for (size_t d = 0; d < a.dims.size(); ++d) {
    auto cuts = boundaries(a.dims[d]);
    for (const Expr& cut : boundaries(b.dims[d])) cuts.push_back(cut);
    auto x = refine(a.dims[d], cuts), y = refine(b.dims[d], cuts);
    auto same_size = [](const Part& p, const Part& q) { return p.size == q.size; };
    if (!x || !y || !std::equal(x->parts.begin(), x->parts.end(), y->parts.begin(), y->parts.end(), same_size)) {
      result.dims[d].parts = {Part{a.dims[d].size(), {}}};
      continue;
    }
    for (size_t p = 0; p < x->parts.size(); ++p) {
      auto& axes = x->parts[p].axes;
      const auto& other = y->parts[p].axes;
      size_t n = 0;
      while (n < axes.size() && n < other.size() && axes[n] == other[n]) ++n;
      axes.resize(n);
    }
    result.dims[d].parts = std::move(x->parts);
  }
  std::erase_if(result.at,
                [&](const PlacedAxis& place) { return std::find(b.at.begin(), b.at.end(), place) == b.at.end(); });
  return result;
}

class Decider {
 public:
  Decider(const Graph& graph, const Layout& layout, const Mesh& mesh, const Hints& hints, const Storage& storage,
          const Decisions* before)
      : graph_(graph),
        layout_(layout),
        mesh_(mesh),
        hints_(hints),
        storage_(storage),
        before_(before),
        ordered_states_(ordered_states(layout)),
        terms_(graph, layout, mesh, hints, versions_, wide_) {
    if (before) wishes_.emplace(graph, layout, *before);
    decisions_.fetched = fetched_values(graph, storage);
  }

  Pass run() {
    for (const NodeLayout& node : layout_.nodes) decisions_.nodes.push_back(decide(node));
    store_sources();
    for (const Value* output : graph_.outputs) {
      Sharding wanted = layout_.slots[layout_.output_slot(output)].sharding();
      if (!versions_.contains(output)) wanted = decisions_.sources.at(output);
      decisions_.outputs[output] = wanted;
    }
    return {std::move(decisions_), compared_, orders_.disobeyed, orders_.gathered};
  }

 private:
  const Slot& slot_of(const Place& place) const { return layout_.slots[place.slot]; }
  const std::vector<AxisRef>& axes_at(const Place& place) const {
    return slot_of(place).dims[place.dim].parts[place.part].axes;
  }

  double bytes(const Sharding& from, const Sharding& to, const Moved& of) const {
    if (same_layout(from, to)) return 0;
    double sum = 0;
    for (const ReshardStep& step : plan_reshard(from, to, of.dtype)) sum += of.bytes(step, mesh_, hints_);
    return sum;
  }

  // To bring operand `t` into `wanted`. Sources are stored as wanted unless somebody has said how.
  Cost operand_cost(const NodeLayout& node, size_t t, const Sharding& wanted) const {
    const Value* value = node.node->inputs[t];
    auto known = versions_.find(value);
    if (known == versions_.end()) {
      const Slot& slot = layout_.slots[node.operand_slots[t]];
      Cost cost;
      if (auto stored = storage_.find(value); stored != storage_.end())
        cost.bytes = bytes(stored->second, wanted, {value->dtype()});
      if (!slot.annotated) return cost;
      const double moved = bytes(slot.sharding(), wanted, {value->dtype()});
      if (ordered_states_.contains(value) && moved > 0) cost.gathered = 1;
      if (!storage_.contains(value)) cost.bytes = moved;
      return cost;
    }
    const Moved of{value->dtype(), wide_.contains(value)};
    const double moved = cheapest_route(known->second, wanted, of, mesh_, hints_)->bytes;
    return {.gathered = moved > 0 && ordered_states_.contains(value) ? 1 : 0,
            .bytes = moved > 0 && is_wanted_by_others(node, t, wanted) ? 0 : moved};
  }

  // Whether other uses, too, want operand `t`, or what movements make it from, in this layout: then they share it.
  bool is_wanted_by_others(const NodeLayout& node, size_t t, const Sharding& wanted) const {
    if (!before_ || decisions_.fetched.contains(node.node->inputs[t])) return false;
    const auto way = way_up(layout_, node.node->inputs[t], wanted, decisions_.fetched);
    return std::any_of(way.begin(), way.end(), [&](const Level& level) {
      return wishes_->is_wanted_beside(node.node, level.value, level.wanted);
    });
  }

  // To bring a result into all layouts in which the earlier pass' uses want it; without one, into the one that
  // propagation found.
  double use_cost(const Slot& slot, const Sharding& produced) const {
    const Moved of{slot.value->dtype(), ops::has_wide_sums(*slot.value->producer)};
    if (!wishes_ || decisions_.fetched.contains(slot.value)) return bytes(produced, slot.sharding(), of);
    std::vector<Sharding> made = {produced};
    double sum = 0;
    for (const Wishes::Wish& wish : wishes_->of(slot.value)) {
      const auto route = cheapest_route(made, wish.layout, of, mesh_, hints_);
      sum += route->bytes;
      for (const ReshardStep& step : route->steps) made.push_back(step.after);
    }
    return sum;
  }

  static bool is_priced(const NodeLayout& node) {
    return std::any_of(node.rule.factors.begin(), node.rule.factors.end(),
                       [](const ops::Factor& factor) { return ops::traits_of(factor.kind).priced; });
  }

  // How much of its reduction a priced result pays for that is partial over these axes: nothing if it meets a sum that
  // is reduced in any case, and a share if it meets others like itself.
  double share_of_reduction(const NodeLayout& node, const std::vector<PartialAxis>& axes) const {
    if (axes.empty() || !is_priced(node)) return 1;
    int alike = 1;
    for (const Value* other : terms_.other_terms(node, axes)) {
      if (is_priced(layout_.of(other->producer)))
        ++alike;
      else if (!before_ || was_partial(*other, axes))
        return 0;
    }
    return 1.0 / alike;
  }

  // In the earlier pass.
  bool was_partial(const Value& value, const std::vector<PartialAxis>& axes) const {
    const auto& partial = before_->nodes[layout_.index_of(value.producer)].results[0].partial;
    return std::all_of(axes.begin(), axes.end(), [&](const PartialAxis& axis) {
      return std::find(partial.begin(), partial.end(), axis) != partial.end();
    });
  }

  Cost result_cost(const NodeLayout& node, size_t t, const Sharding& produced) const {
    const Slot& slot = layout_.slots[node.result_slots[t]];
    double moved = use_cost(slot, produced);
    if (const double share = share_of_reduction(node, produced.partial); share < 1) {
      Sharding whole = produced;
      whole.partial.clear();
      const double beside = use_cost(slot, whole);
      moved = beside + share * (moved - beside);
    }
    if (!slot.annotated) return {.bytes = moved};
    Sharding reduced = produced;
    reduced.partial.clear();
    // An order about a result is an order about how to compute it; only what is summed may come afterwards.
    bool obeys = true;
    for (size_t d = 0; d < reduced.dims.size(); ++d)
      for (size_t p = 0; p < reduced.dims[d].parts.size(); ++p) {
        const auto& made = reduced.dims[d].parts[p].axes;
        const auto& ordered = slot.dims[d].parts[p].axes;
        auto is_reduced = [&](const AxisRef& axis) {
          return std::any_of(produced.partial.begin(), produced.partial.end(),
                             [&](const PartialAxis& partial) { return partial.axis.overlaps(axis); });
        };
        if (made == ordered) continue;
        obeys &= is_prefix(made, ordered) &&
                 std::all_of(ordered.begin() + static_cast<long>(made.size()), ordered.end(), is_reduced);
      }
    return {.disobeyed = obeys ? 0 : 1, .bytes = moved};
  }

  // At least `most` if it would be more.
  Cost cost(const NodeLayout& node, const Assignment& assignment, const Cost& most) const {
    Cost sum;
    for (size_t t = 0; t < node.operand_slots.size() && sum < most; ++t)
      if (node.operand_slots[t] >= 0) {
        Sharding wanted = terms_.laid_out(node, assignment, false, t);
        sum.bytes += kTie * terms_.local_bytes(wanted, node.node->inputs[t]->dtype());
        if (sum < most) sum += operand_cost(node, t, wanted);
      }
    for (size_t t = 0; t < node.result_slots.size() && sum < most; ++t)
      if (node.result_slots[t] >= 0) {
        Sharding produced = terms_.laid_out(node, assignment, true, t);
        sum.bytes += kTie * terms_.local_bytes(produced, node.node->outputs[t]->dtype());
        if (sum < most) sum += result_cost(node, t, produced);
      }
    if (sum < most) sum.bytes += bytes_within(layout_, node, assignment, mesh_, hints_);
    return sum;
  }

  // All ways to give each subfactor one of the axis lists that its places have, no axis twice.
  Assignment choose(const NodeLayout& node) {
    std::vector<std::vector<std::vector<AxisRef>>> candidates(node.subfactors.size());
    Assignment longest(node.subfactors.size());
    bool conflict = false;
    for (size_t s = 0; s < node.subfactors.size(); ++s) {
      if (!node.subfactors[s].splittable) continue;
      for (const Place& place : node.subfactors[s].places) {
        auto axes = axes_at(place);
        auto placed = [&](const AxisRef& axis) { return overlaps(node.at, axis); };
        axes.erase(std::find_if(axes.begin(), axes.end(), placed), axes.end());
        if (axes.empty()) continue;
        const auto& traits = ops::traits_of(node.rule.factors[node.subfactors[s].factor].kind);
        conflict |= traits.communicates() || traits.by_window || traits.priced;
        if (std::find(candidates[s].begin(), candidates[s].end(), axes) == candidates[s].end())
          candidates[s].push_back(axes);
        if (is_prefix(longest[s], axes))
          longest[s] = axes;
        else if (!is_prefix(axes, longest[s]))
          conflict = true;
      }
    }
    conflict |= add_wishes(node, candidates);
    if (!conflict && disjoint(longest)) return longest;
    for (auto& lists : candidates) {
      auto whole = lists;
      for (const auto& axes : whole)
        for (size_t n = 1; n < axes.size(); ++n) {
          std::vector<AxisRef> prefix(axes.begin(), axes.begin() + static_cast<long>(n));
          if (std::find(lists.begin(), lists.end(), prefix) == lists.end()) lists.push_back(prefix);
        }
      lists.emplace_back();
    }
    Assignment best(node.subfactors.size()), now(node.subfactors.size());
    Cost best_cost = kWorst;
    int tried = 0;
    search(node, candidates, 0, now, best, best_cost, tried);
    compared_ = true;
    orders_ += best_cost;
    return best;
  }

  // Where a rank that makes less of a result needs no more of operands, adds the axes that uses want. Whether there are
  // any that were not candidates.
  bool add_wishes(const NodeLayout& node, std::vector<std::vector<std::vector<AxisRef>>>& candidates) const {
    bool added = false;
    for (size_t s = 0; s < node.subfactors.size(); ++s)
      if (follows_use(node, s))
        for (const Place& place : node.subfactors[s].places)
          for (std::vector<AxisRef> axes : wished_at(place)) {
            auto& known = candidates[s];
            if (axes.empty()) {
              added |= !known.empty();  // each rank may make all of it
              continue;
            }
            const auto placed = [&](const AxisRef& axis) { return overlaps(node.at, axis); };
            axes.erase(std::find_if(axes.begin(), axes.end(), placed), axes.end());
            if (axes.empty() || std::find(known.begin(), known.end(), axes) != known.end()) continue;
            known.push_back(axes);
            added = true;
          }
    return added;
  }

  static bool follows_use(const NodeLayout& node, size_t s) {
    const auto& subfactor = node.subfactors[s];
    const bool is_repeated = std::none_of(subfactor.places.begin(), subfactor.places.end(),
                                          [](const Place& place) { return !place.result; });
    return subfactor.splittable &&
           (is_repeated || ops::traits_of(node.rule.factors[subfactor.factor].kind).follows_use);
  }

  // The axes over which uses want a result split there, none if whole: as the earlier pass decided, or as propagation
  // found.
  std::vector<std::vector<AxisRef>> wished_at(const Place& place) const {
    std::vector<std::vector<AxisRef>> all;
    if (!place.result) return all;
    const Slot& own = slot_of(place);
    const std::vector<Expr> cuts = boundaries(own.sharding().dims[place.dim]);
    const auto add = [&](const Sharding& wanted) {
      const DimSharding& dim = wanted.dims[place.dim];
      if (boundaries(dim) == cuts) all.push_back(dim.parts[place.part].axes);
    };
    if (wishes_)
      for (const Wishes::Wish& wish : wishes_->of(own.value)) add(wish.layout);
    else
      for (int use : layout_.of_value.at(own.value)) add(layout_.slots[use].sharding());
    return all;
  }

  void search(const NodeLayout& node, const std::vector<std::vector<std::vector<AxisRef>>>& candidates, size_t s,
              Assignment& now, Assignment& best, Cost& best_cost, int& tried) {
    constexpr int kMostTried = 512;  // a bound on time; candidates come in order of appearance
    if (tried >= kMostTried) return;
    if (s == candidates.size()) {
      ++tried;
      const Cost sum = cost(node, now, best_cost);
      if (sum < best_cost) {
        best_cost = sum;
        best = now;
      }
      return;
    }
    for (const auto& axes : candidates[s]) {
      now[s] = axes;
      if (disjoint(now)) search(node, candidates, s + 1, now, best, best_cost, tried);
      now[s].clear();
    }
  }

  static bool disjoint(const Assignment& assignment) {
    std::vector<const AxisRef*> seen;
    for (const auto& axes : assignment)
      for (const AxisRef& axis : axes) {
        for (const AxisRef* other : seen)
          if (other->overlaps(axis)) return false;
        seen.push_back(&axis);
      }
    return true;
  }

  // The choice for a carried value counts for all its nodes.
  Assignment chosen_for_carry(const NodeLayout& node, const NodeLayout& carry) const {
    const Assignment& of_carry = decisions_.nodes[layout_.index_of(carry.node)].axes;
    Assignment result(node.subfactors.size());
    for (size_t s = 0; s < node.subfactors.size(); ++s)
      for (const Place& place : node.subfactors[s].places)
        for (size_t c = 0; c < carry.subfactors.size(); ++c)
          for (const Place& other : carry.subfactors[c].places)
            if (place.slot == carry.result_slots[0] && other.slot == place.slot && other.dim == place.dim &&
                other.part == place.part)
              result[s] = of_carry[c];
    return result;
  }

  NodeDecision decide(const NodeLayout& node) {
    NodeDecision decision;
    const Node* carry = Layout::carry_of(*node.node);
    decision.axes = carry ? chosen_for_carry(node, layout_.of(carry)) : choose(node);
    Assignment whole = terms_.without_partial_axes(node, decision.axes);
    PartialTerms::Kept kept = terms_.kept(node, whole);
    if (kept.operands.size() > 1)
      decision.axes = std::move(whole);  // each would be scattered; their sum is scattered once
    else
      kept = terms_.kept(node, decision.axes);
    decision.held = kept.held;
    for (size_t t = 0; t < node.operand_slots.size(); ++t) {
      if (node.operand_slots[t] < 0) {
        decision.operands.emplace_back();
        continue;
      }
      Sharding wanted = terms_.laid_out(node, decision.axes, false, t);
      if (std::find(kept.operands.begin(), kept.operands.end(), static_cast<int>(t)) != kept.operands.end())
        wanted.partial = versions_.at(node.node->inputs[t]).front().partial;
      decision.operands.push_back(wanted);
      const Value* value = node.node->inputs[t];
      auto known = versions_.find(value);
      if (known == versions_.end()) {
        wants_[value].push_back(wanted);
        continue;
      }
      auto same = [&](const Sharding& version) { return same_layout(version, wanted); };
      if (decisions_.fetched.contains(value)) continue;
      if (std::none_of(known->second.begin(), known->second.end(), same)) known->second.push_back(wanted);
    }
    for (size_t t = 0; t < node.result_slots.size(); ++t) {
      if (node.result_slots[t] < 0) {
        decision.results.emplace_back();
        continue;
      }
      Sharding produced = terms_.laid_out(node, decision.axes, true, t);
      produced.partial.insert(produced.partial.end(), kept.axes.begin(), kept.axes.end());
      decision.results.push_back(produced);
      versions_[node.node->outputs[t]] = {produced};
      if (makes_wide_sums(node, decision, t, wide_)) wide_.insert(node.node->outputs[t]);
    }
    return decision;
  }

  void store_sources() {
    for (const auto& value : graph_.values())  // what nothing reads
      if (value->next || (value->changing && value->origin))
        decisions_.sources[value.get()] = Sharding::replicated(value->shape());
    for (const auto& [value, slots] : layout_.of_value) {
      if (value->producer) continue;
      bool annotated = layout_.slots[slots.front()].annotated;
      auto wants = wants_.find(value);
      if (!annotated && wants == wants_.end()) {
        decisions_.sources[value] = Sharding::replicated(value->shape());
        continue;
      }
      // Annotated: what all uses were told, axes that an open dimension attracted included. Else what all uses want.
      Sharding stored = annotated ? layout_.slots[slots.front()].sharding() : wants->second.front();
      if (annotated) {
        // A closed dimension is as ordered, even where uses of other parts put the axis elsewhere.
        const Sharding ordered = stored;
        for (int slot : slots) stored = meet(stored, layout_.slots[slot].sharding());
        for (size_t d = 0; d < stored.dims.size(); ++d)
          if (!layout_.slots[slots.front()].dims[d].open) stored.dims[d] = ordered.dims[d];
      } else {
        for (const Sharding& other : wants->second) stored = meet(stored, other);
      }
      if (value->kind == ValueKind::input) stored.at.clear();  // the caller gives it to all
      decisions_.sources[value] = stored;
    }
    for (const auto& [state, sharding] : storage_) {
      auto found = decisions_.sources.find(state);
      if (found == decisions_.sources.end()) continue;
      const std::vector<PlacedAxis> at = std::move(found->second.at);
      found->second = sharding;
      found->second.at = at;
      for (const AxisRef& axis : sharding.axes())
        if (overlaps(at, axis))
          fail("store", "'{}' is placed at one index of the axis '{}', so that it cannot be stored split over it",
               state->name, axis.str(mesh_));
    }
  }

  const Graph& graph_;
  const Layout& layout_;
  const Mesh& mesh_;
  const Hints& hints_;
  const Storage& storage_;
  const Decisions* before_;  // of the earlier pass, if there is one
  const std::set<const Value*> ordered_states_;
  std::map<const Value*, std::vector<Sharding>> versions_;  // of results, the first as produced
  std::map<const Value*, std::vector<Sharding>> wants_;     // of sources
  std::optional<Wishes> wishes_;                            // of its uses
  bool compared_ = false;
  Cost orders_;
  std::set<const Value*> wide_;  // partial values that are held in float32 if 16-bit
  const PartialTerms terms_;
  Decisions decisions_;
};

}  // namespace

Pass decide_nodes(const Graph& graph, const Layout& layout, const Mesh& mesh, const Hints& hints,
                  const Storage& storage, const Decisions* before) {
  return Decider(graph, layout, mesh, hints, storage, before).run();
}

}  // namespace tessera::spmd

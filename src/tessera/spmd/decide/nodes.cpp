#include "tessera/spmd/decide/nodes.h"

#include <algorithm>
#include <optional>
#include <set>

#include "tessera/spmd/decide/prices.h"
#include "tessera/spmd/decide/sources.h"
#include "tessera/spmd/decide/versions.h"
#include "tessera/spmd/decide/wishes.h"

namespace tessera::spmd {
namespace {

class Decider {
 public:
  Decider(const Graph& graph, const Layout& layout, const Costs& costs, const Storage& storage,
          const std::set<const Node*>& scattered, const std::optional<Earlier>& earlier)
      : graph_(graph),
        layout_(layout),
        mesh_(costs.mesh()),
        storage_(storage),
        scattered_(scattered),
        terms_(graph, layout, costs.mesh(), costs.hints(), decided_.versions, decided_.wide),
        prices_(layout, costs, storage, terms_, decided_) {
    if (earlier) decided_.before = &earlier->decisions, decided_.wishes = &earlier->wishes;
    decided_.fetched = fetched_values(graph, storage);
    decisions_.fetched = decided_.fetched;
  }

  Pass run(Repeats& repeats) {
    for (const NodeLayout& node : layout_.nodes) {
      decisions_.nodes.push_back(decide(node, repeats));
      note(node, decisions_.nodes.back());
    }
    decisions_.sources = stored_sources(graph_, layout_, wants_, storage_, mesh_);
    for (const Value* output : graph_.outputs) {
      Sharding wanted = layout_.slots[layout_.output_slot(output)].sharding();
      if (!decided_.versions.contains(output)) wanted = decisions_.sources.at(output);
      decisions_.outputs[output] = wanted;
    }
    return {std::move(decisions_), compared_, orders_.disobeyed, orders_.gathered};
  }

  // With an earlier pass: the ways to compute a node, if all others are as decided there.
  std::vector<Alternative> compare(const Node* asked) {
    std::vector<Alternative> found;
    for (size_t n = 0; layout_.nodes[n].node != asked; ++n) note(layout_.nodes[n], decided_.before->nodes[n]);
    const size_t at = layout_.index_of(asked);
    const NodeLayout& node = layout_.nodes[at];
    if (Layout::carry_of(*asked)) return found;  // the carried value's choice counts
    seen_ = &found;
    Outcome unused;
    choose(node, unused);
    const NodeDecision& decision = decided_.before->nodes[at];
    const auto is_chosen = [&](const Alternative& each) { return each.axes == decision.axes; };
    if (std::none_of(found.begin(), found.end(), is_chosen)) add_alternative(node, decision.axes);
    for (Alternative& each : found) {
      each.chosen = is_chosen(each);
      if (each.chosen) each.operands = decision.operands, each.results = decision.results;
    }
    std::stable_sort(found.begin(), found.end(), [](const Alternative& a, const Alternative& b) {
      return a.chosen != b.chosen ? a.chosen : a.price < b.price;
    });
    return found;
  }

 private:
  void add_alternative(const NodeLayout& node, const Assignment& axes) {
    Alternative made{axes, {}, {}, prices_.of(node, axes, kWorst)};
    for (size_t t = 0; t < node.operand_slots.size(); ++t)
      made.operands.push_back(node.operand_slots[t] < 0 ? Sharding{} : terms_.laid_out(node, axes, false, t));
    for (size_t t = 0; t < node.result_slots.size(); ++t)
      made.results.push_back(node.result_slots[t] < 0 ? Sharding{} : terms_.laid_out(node, axes, true, t));
    seen_->push_back(std::move(made));
  }

  const Slot& slot_of(const Place& place) const { return layout_.slots[place.slot]; }
  const std::vector<AxisRef>& axes_at(const Place& place) const {
    return slot_of(place).dims[place.dim].parts[place.part].axes;
  }

  // A stored value is cast to fewer bits where it is stored, so that each use gathers these bits, and a rank keeps
  // nothing whole between uses. Prices would not see what is kept: to gather float32 once moves as many bytes as to
  // gather 16 bits twice.
  std::optional<Assignment> as_stored(const NodeLayout& node) const {
    if (node.updates || node.node->outputs.size() != 1 || !decided_.fetched.contains(node.node->output()))
      return std::nullopt;
    const Sharding* stored = nullptr;
    for (const Value* operand : node.node->inputs) {
      if (!operand || !decided_.fetched.contains(operand)) continue;
      if (bits_of(node.node->output()->dtype()) >= bits_of(operand->dtype())) return std::nullopt;
      const auto state = storage_.find(operand);
      const Sharding& layout = state != storage_.end() ? state->second : decided_.versions.find(operand)->front();
      if (stored && !same_layout(*stored, layout)) return std::nullopt;
      stored = &layout;
    }
    return axes_for(layout_, node, *stored);
  }

  // All ways to give each subfactor one of the axis lists found at its places, without using an axis twice.
  Assignment choose(const NodeLayout& node, Outcome& outcome) {
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
    if (!seen_ && !conflict && disjoint(longest)) return longest;
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
    Price best_cost = kWorst;
    int tried = 0;
    search(node, candidates, 0, now, best, best_cost, tried);
    outcome.compared = true;
    outcome.orders = best_cost;
    return best;
  }

  // Where a rank that computes less of a result needs no more of its operands, adds the axes that uses want. Returns
  // whether any of them is new.
  bool add_wishes(const NodeLayout& node, std::vector<std::vector<std::vector<AxisRef>>>& candidates) const {
    bool added = false;
    for (size_t s = 0; s < node.subfactors.size(); ++s)
      if (follows_use(node, s))
        for (const Place& place : node.subfactors[s].places)
          for (std::vector<AxisRef> axes : wished_at(place)) {
            auto& known = candidates[s];
            if (axes.empty()) {
              added |= !known.empty();  // each rank may compute all of it
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

  // The axes over which uses want a result split there (none: whole), by the earlier pass or else by propagation.
  std::vector<std::vector<AxisRef>> wished_at(const Place& place) const {
    std::vector<std::vector<AxisRef>> all;
    if (!place.result) return all;
    const Slot& own = slot_of(place);
    const std::vector<Expr> cuts = boundaries(own.sharding().dims[place.dim]);
    const auto add = [&](const Sharding& wanted) {
      const DimSharding& dim = wanted.dims[place.dim];
      if (boundaries(dim) == cuts) all.push_back(dim.parts[place.part].axes);
    };
    if (decided_.wishes)
      for (const Wishes::Wish& wish : decided_.wishes->of(own.value)) add(wish.layout);
    else
      for (int use : layout_.of_value.at(own.value)) add(layout_.slots[use].sharding());
    return all;
  }

  void search(const NodeLayout& node, const std::vector<std::vector<std::vector<AxisRef>>>& candidates, size_t s,
              Assignment& now, Assignment& best, Price& best_cost, int& tried) {
    constexpr int kMostTried = 512;  // bounds the time; candidates are in order of appearance
    if (tried >= kMostTried) return;
    if (s == candidates.size()) {
      ++tried;
      if (seen_) return add_alternative(node, now);
      const Price sum = prices_.of(node, now, best_cost);
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

  NodeDecision decide(const NodeLayout& node, Repeats& repeats) {
    Outcome outcome = repeats.of(node, decided_, [&] { return compute(node); });
    compared_ |= outcome.compared;
    orders_ += outcome.orders;
    return std::move(outcome.decision);
  }

  Outcome compute(const NodeLayout& node) {
    Outcome outcome;
    NodeDecision& decision = outcome.decision;
    const Node* carry = Layout::carry_of(*node.node);
    if (carry)
      decision.axes = chosen_for_carry(node, layout_.of(carry));
    else if (std::optional<Assignment> stored = as_stored(node))
      decision.axes = std::move(*stored);
    else
      decision.axes = choose(node, outcome);
    Assignment whole = terms_.without_partial_axes(node, decision.axes);
    PartialTerms::Kept kept = terms_.kept(node, whole);
    if (kept.operands.size() > 1 && !scattered_.contains(node.node))
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
        wanted.partial = decided_.versions.find(node.node->inputs[t])->front().partial;
      decision.operands.push_back(std::move(wanted));
    }
    for (size_t t = 0; t < node.result_slots.size(); ++t) {
      if (node.result_slots[t] < 0) {
        decision.results.emplace_back();
        continue;
      }
      Sharding produced = terms_.laid_out(node, decision.axes, true, t);
      produced.partial.insert(produced.partial.end(), kept.axes.begin(), kept.axes.end());
      decision.results.push_back(std::move(produced));
    }
    return outcome;
  }

  // From now on, operands exist in the layouts that the node needs, and its results in those that it makes.
  void note(const NodeLayout& node, const NodeDecision& decision) {
    for (size_t t = 0; t < node.operand_slots.size(); ++t) {
      if (node.operand_slots[t] < 0) continue;
      const Sharding& wanted = decision.operands[t];
      const Value* value = node.node->inputs[t];
      auto* known = decided_.versions.find(value);
      if (!known) {
        wants_[value].push_back(wanted);
        continue;
      }
      auto same = [&](const Sharding& version) { return same_layout(version, wanted); };
      if (decisions_.fetched.contains(value)) continue;
      if (std::none_of(known->begin(), known->end(), same)) known->push_back(wanted);
    }
    for (size_t t = 0; t < node.result_slots.size(); ++t) {
      if (node.result_slots[t] < 0) continue;
      decided_.versions[node.node->outputs[t]] = {decision.results[t]};
      if (makes_wide_sums(node, decision, t, decided_.wide)) decided_.wide.insert(node.node->outputs[t]);
    }
  }

  const Graph& graph_;
  const Layout& layout_;
  const Mesh& mesh_;
  const Storage& storage_;
  const std::set<const Node*>& scattered_;
  std::map<const Value*, std::vector<Sharding>> wants_;  // of sources
  Decided decided_;
  const PartialTerms terms_;
  const Prices prices_;
  bool compared_ = false;
  Price orders_;
  Decisions decisions_;
  std::vector<Alternative>* seen_ = nullptr;  // where choose() notes all that it tries; null: it chooses
};

}  // namespace

Pass decide_nodes(const Graph& graph, const Layout& layout, const Costs& costs, const Storage& storage,
                  const std::set<const Node*>& scattered, Repeats& repeats, const std::optional<Earlier>& earlier) {
  return Decider(graph, layout, costs, storage, scattered, earlier).run(repeats);
}

std::vector<Alternative> alternatives_of(const Node* node, const Graph& graph, const Layout& layout,
                                         const Decisions& decisions, const Costs& costs, const Storage& storage) {
  const Wishes wishes(graph, layout, decisions);
  const std::set<const Node*> scattered;  // alternatives are ways to split the node
  return Decider(graph, layout, costs, storage, scattered, Earlier{decisions, wishes}).compare(node);
}

}  // namespace tessera::spmd

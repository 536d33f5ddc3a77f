#include "tessera/spmd/decide/decide.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/spmd/decide/nodes.h"
#include "tessera/spmd/decide/share.h"
#include "tessera/spmd/decide/versions.h"
#include "tessera/spmd/decide/wishes.h"

namespace tessera::spmd {
namespace {

// What one rank receives under some decisions, in layout changes and within nodes, and on a machine what it computes. A
// layout change that several uses
// share counts once, since the partitioner makes it once.
class Account {
 public:
  Account(const Layout& layout, const Decisions& decisions, const Costs& costs)
      : layout_(layout), decisions_(decisions), costs_(costs) {}

  Traffic of(const Graph& graph) {
    const auto visit = [this](const Value* value, const Sharding& wanted) { take(value, wanted); };
    for (size_t n = 0; n < layout_.nodes.size(); ++n) {
      for_each_operand(layout_.nodes[n], decisions_.nodes[n], visit);
      for (size_t t = 0; t < layout_.nodes[n].result_slots.size(); ++t)
        if (layout_.nodes[n].result_slots[t] >= 0) note_result(layout_.nodes[n], decisions_.nodes[n], t);
    }
    for (size_t n = 0; n < layout_.nodes.size(); ++n) {
      const NodeLayout& node = layout_.nodes[n];
      const NodeDecision& decision = decisions_.nodes[n];
      sum_.cost += cost_within(layout_, node, decision.axes, costs_);
      sum_.cost += costs_.computing(node, decision.axes, decision.operands, decision.results);
    }
    for_each_leaf(graph, decisions_, visit);
    return sum_;
  }

 private:
  void note_result(const NodeLayout& node, const NodeDecision& decision, size_t t) {
    const Value* result = node.node->outputs[t];
    versions_[result] = {decision.results[t]};
    if (makes_wide_sums(node, decision, t, wide_)) wide_.insert(result);
  }

  void take(const Value* value, const Sharding& wanted) {
    std::vector<Sharding>& versions = versions_[value];
    if (versions.empty()) versions = {decisions_.sources.at(value)};
    const auto route = cheapest_route(versions, wanted, {value->dtype(), wide_.contains(value)}, costs_);
    check(route.has_value(), "a value has a layout to change");
    if (route->steps.empty()) return;
    const auto forms = decisions_.repeated.find(value);
    if (forms != decisions_.repeated.end())
      for (const NodeDecision& form : forms->second)
        if (same_layout(form.results[0], wanted)) {
          take(value->producer->inputs[0], form.operands[0]);
          versions.push_back(wanted);
          return;
        }
    sum_.cost += route->cost;
    for (const ReshardStep& step : route->steps) sum_.collectives += collective_of(step.kind).has_value();
    if (decisions_.fetched.contains(value)) return;
    for (const ReshardStep& step : route->steps) versions.push_back(step.after);
  }

  const Layout& layout_;
  const Decisions& decisions_;
  const Costs& costs_;
  ValueMap<std::vector<Sharding>> versions_;
  ValueSet wide_;  // with float32 partial sums if 16-bit
  Traffic sum_;
};

// Of all operands and results that ranks hold.
double cost_of_holding(const Layout& layout, const Decisions& decisions, const Costs& costs) {
  double sum = 0;
  std::unordered_map<const void*, double> known;  // elements, by dimensions, which alike nodes share
  const auto add = [&](const Value* value, const Sharding& sharding) {
    const auto [elements, fresh] = known.try_emplace(sharding.dims.identity());
    if (fresh) elements->second = hinted(largest_shard(sharding, costs.mesh()), costs.hints());
    sum += elements->second * bits_of(value->dtype()) / 8;
  };
  for (size_t n = 0; n < layout.nodes.size(); ++n) {
    const NodeLayout& node = layout.nodes[n];
    for_each_operand(node, decisions.nodes[n], add);
    for (size_t t = 0; t < node.result_slots.size(); ++t)
      if (node.result_slots[t] >= 0) add(node.node->outputs[t], decisions.nodes[n].results[t]);
  }
  return costs.holding(sum);
}

bool are_alike(const Decisions& a, const Decisions& b) {
  return std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(),
                    [](const NodeDecision& x, const NodeDecision& y) { return x.axes == y.axes; });
}

Decisions decide_jointly(const Graph& graph, const Layout& layout, const Costs& costs, const Storage& storage,
                         const std::set<const Node*>& scattered) {
  constexpr int kMostPasses = 4;  // bounds the time; the second pass finds most
  const auto cost = [&](const Pass& pass) {
    const double all =
        traffic_of(graph, layout, pass.decisions, costs).cost + cost_of_holding(layout, pass.decisions, costs);
    return std::tuple(pass.disobeyed, pass.gathered, all);
  };
  Repeats repeats(layout, costs, storage, scattered);
  Pass best = decide_nodes(graph, layout, costs, storage, scattered, repeats);
  Decisions alone = best.compared ? best.decisions : Decisions{};
  std::optional<Wishes> wishes;  // of the decisions that do not share layout changes yet
  share_layout_changes(graph, layout, best.decisions, wishes);
  best.decisions.computed = repeats.computed();
  if (!best.compared) return std::move(best.decisions);
  std::optional<decltype(cost(best))> least;
  for (int passes = 1; passes < kMostPasses; ++passes) {
    if (!wishes) wishes.emplace(graph, layout, alone);
    Pass next = decide_nodes(graph, layout, costs, storage, scattered, repeats, Earlier{alone, *wishes});
    if (are_alike(next.decisions, alone)) break;
    alone = next.decisions;
    wishes.reset();
    share_layout_changes(graph, layout, next.decisions, wishes);
    if (!least) least = cost(best);
    const auto now = cost(next);
    if (now >= *least) break;
    least = now;
    best = std::move(next);
  }
  best.decisions.computed = repeats.computed();
  return std::move(best.decisions);
}

}  // namespace

Traffic traffic_of(const Graph& graph, const Layout& layout, const Decisions& decisions, const Costs& costs) {
  return Account(layout, decisions, costs).of(graph);
}

Decisions decide(const Graph& graph, const Layout& layout, const Mesh& mesh, const Hints& hints,
                 const std::vector<Annotation>& annotations, const Storage& storage, const cost::Prices* prices,
                 const std::set<const Node*>& scattered) {
  Decisions decisions = decide_jointly(graph, layout, Costs(mesh, hints, prices), storage, scattered);
  for (const Annotation& annotation : annotations)
    for (const PartialAxis& claimed : annotation.sharding.partial) {
      if (claimed.axis.size == 1) continue;
      bool holds = false;
      for (size_t n = 0; n < layout.nodes.size(); ++n)
        for (size_t t = 0; t < layout.nodes[n].node->outputs.size(); ++t)
          if (layout.nodes[n].node->outputs[t] == annotation.value) {
            const auto& partial = decisions.nodes[n].results[t].partial;
            holds = std::find(partial.begin(), partial.end(), claimed) != partial.end();
          }
      if (!holds)
        fail("annotate",
             "'{}' is annotated partial({}:{}), but its producer does not reduce over that axis; split "
             "the dimension that it contracts, or remove the partial",
             annotation.value->name, name_of(claimed.reduction), claimed.axis.str(mesh));
    }
  return decisions;
}

}  // namespace tessera::spmd

#include "tessera/spmd/decide/prices.h"

#include <algorithm>

#include "tessera/spmd/decide/nodes.h"
#include "tessera/spmd/program.h"
#include "tessera/spmd/reshard/reshard.h"

namespace tessera::spmd {

bool is_priced(const NodeLayout& node) {
  return std::any_of(node.rule.factors.begin(), node.rule.factors.end(),
                     [](const ops::Factor& factor) { return ops::traits_of(factor.kind).priced; });
}

Prices::Prices(const Layout& layout, const Costs& costs, const Storage& storage, const PartialTerms& terms,
               const Decided& decided)
    : layout_(layout),
      costs_(costs),
      storage_(storage),
      terms_(terms),
      decided_(decided),
      ordered_states_(ordered_states(layout)) {}

double Prices::moving(const Sharding& from, const Sharding& to, const Moved& of) const {
  if (same_layout(from, to)) return 0;
  double sum = 0;
  for (const ReshardStep& step : costs_.plan(from, to, of.dtype)) sum += of.cost(step, costs_);
  return sum;
}

// The price of bringing operand `t` into `wanted`. Sources without an annotation are stored as wanted.
Price Prices::operand_cost(const NodeLayout& node, size_t t, const Sharding& wanted) const {
  const Value* value = node.node->inputs[t];
  const auto* known = decided_.versions.find(value);
  if (!known) {
    const Slot& slot = layout_.slots[node.operand_slots[t]];
    Price cost;
    if (auto stored = storage_.find(value); stored != storage_.end())
      cost.cost = moving(stored->second, wanted, {value->dtype()});
    if (!slot.annotated) return cost;
    const double moved = moving(slot.sharding(), wanted, {value->dtype()});
    if (ordered_states_.contains(value) && moved > 0) cost.gathered = 1;
    if (!storage_.contains(value)) cost.cost = moved;
    return cost;
  }
  const Moved of{value->dtype(), decided_.wide.contains(value)};
  const double moved = cheapest_route(*known, wanted, of, costs_)->cost;
  return {.gathered = moved > 0 && ordered_states_.contains(value) ? 1 : 0,
          .cost = moved > 0 && is_wanted_by_others(node, t, wanted) ? 0 : moved};
}

// Whether other uses also want operand `t`, or the value that movements make it from, in this layout; they then share
// it.
bool Prices::is_wanted_by_others(const NodeLayout& node, size_t t, const Sharding& wanted) const {
  if (!decided_.before || decided_.fetched.contains(node.node->inputs[t])) return false;
  const auto way = way_up(layout_, node.node->inputs[t], wanted, decided_.fetched);
  return std::any_of(way.begin(), way.end(), [&](const Level& level) {
    return decided_.wishes->is_wanted_beside(node.node, level.value, level.wanted);
  });
}

// The price of bringing a result into all layouts that its uses wanted in the earlier pass; in the first pass, into the
// one that propagation found.
double Prices::use_cost(const Slot& slot, const Sharding& produced) const {
  const Moved of{slot.value->dtype(), layout_.of(slot.value->producer).wide_sums};
  if (!decided_.wishes || decided_.fetched.contains(slot.value)) return moving(produced, slot.sharding(), of);
  std::vector<Sharding> made = {produced};
  double sum = 0;
  for (const Wishes::Wish& wish : decided_.wishes->of(slot.value)) {
    const auto route = cheapest_route(made, wish.layout, of, costs_);
    sum += route->cost;
    for (const ReshardStep& step : route->steps) made.push_back(step.after);
  }
  return sum;
}

// The share of its reduction that a result pays if it is partial over these axes: none if it is added to a sum that is
// reduced anyway, and a fraction if it is added to other results like itself.
double Prices::share_of_reduction(const NodeLayout& node, const std::vector<PartialAxis>& axes) const {
  if (axes.empty() || !is_priced(node)) return 1;
  int alike = 1;
  for (const Value* other : terms_.other_terms(node, axes)) {
    if (is_priced(layout_.of(other->producer)))
      ++alike;
    else if (!decided_.before || was_partial(*other, axes))
      return 0;
  }
  return 1.0 / alike;
}

// In the earlier pass.
bool Prices::was_partial(const Value& value, const std::vector<PartialAxis>& axes) const {
  const auto& partial = decided_.before->nodes[layout_.index_of(value.producer)].results[0].partial;
  return std::all_of(axes.begin(), axes.end(), [&](const PartialAxis& axis) {
    return std::find(partial.begin(), partial.end(), axis) != partial.end();
  });
}

Price Prices::result_cost(const NodeLayout& node, size_t t, const Sharding& produced) const {
  const Slot& slot = layout_.slots[node.result_slots[t]];
  double moved = use_cost(slot, produced);
  if (const double share = share_of_reduction(node, produced.partial); share < 1) {
    Sharding whole = produced;
    whole.partial.clear();
    const double beside = use_cost(slot, whole);
    moved = beside + share * (moved - beside);
  }
  if (!slot.annotated) return {.cost = moved};
  Sharding reduced = produced;
  reduced.partial.clear();
  // An annotation of a result says how to compute it; only a reduction may follow.
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
  return {.disobeyed = obeys ? 0 : 1, .cost = moved};
}

Price Prices::of(const NodeLayout& node, const Assignment& assignment, const Price& most) const {
  Price sum;
  std::vector<Sharding> operands(node.operand_slots.size()), results(node.result_slots.size());
  for (size_t t = 0; t < node.operand_slots.size() && sum < most; ++t)
    if (node.operand_slots[t] >= 0) {
      operands[t] = terms_.laid_out(node, assignment, false, t);
      sum.cost += costs_.holding(terms_.local_bytes(operands[t], node.node->inputs[t]->dtype()));
      if (sum < most) sum += operand_cost(node, t, operands[t]);
    }
  for (size_t t = 0; t < node.result_slots.size() && sum < most; ++t)
    if (node.result_slots[t] >= 0) {
      results[t] = terms_.laid_out(node, assignment, true, t);
      sum.cost += costs_.holding(terms_.local_bytes(results[t], node.node->outputs[t]->dtype()));
      if (sum < most) sum += result_cost(node, t, results[t]);
    }
  if (sum < most) sum.cost += cost_within(layout_, node, assignment, costs_);
  if (sum < most) sum.cost += costs_.computing(node, assignment, operands, results);
  return sum;
}

}  // namespace tessera::spmd

#include "tessera/spmd/decide/partial_terms.h"

#include <algorithm>

#include "tessera/ops/library/finite.h"
#include "tessera/spmd/program.h"

namespace tessera::spmd {
namespace {

bool allows(const ops::PartialSet& set, const PartialAxis& axis, const NodeLayout& node) {
  return set.reduction == axis.reduction && std::all_of(set.finite.begin(), set.finite.end(), [&](int other) {
           return ops::are_finite(node.node->inputs[other]);
         });
}

// The operands of a sum that may have partial operands; null if the node is not such a sum.
const std::vector<int>* terms_of_sum(const NodeLayout& node, const std::vector<int>& partial,
                                     const std::vector<PartialAxis>& axes) {
  for (const ops::PartialSet& set : node.rule.partials) {
    const bool sums = std::all_of(axes.begin(), axes.end(), [&](const PartialAxis& axis) {
      return axis.reduction == Reduction::sum && allows(set, axis, node);
    });
    if (sums && set.operands.size() > 1 &&
        std::includes(set.operands.begin(), set.operands.end(), partial.begin(), partial.end()))
      return &set.operands;
  }
  return nullptr;
}

// Whether a subfactor runs along a result; the result is then split, not a partial sum.
bool runs_along(const SubFactor& sub, size_t result) {
  return std::any_of(sub.places.begin(), sub.places.end(),
                     [&](const Place& place) { return place.result && place.tensor == static_cast<int>(result); });
}

}  // namespace

PartialTerms::PartialTerms(const Graph& graph, const Layout& layout, const Mesh& mesh, const Hints& hints,
                           const Versions& versions, const ValueSet& wide)
    : layout_(layout), mesh_(mesh), hints_(hints), versions_(versions), wide_(wide) {
  leaves_.insert(graph.outputs.begin(), graph.outputs.end());
  for (const auto& value : graph.values())
    if (value->next) leaves_.insert(value->next);
}

Sharding PartialTerms::laid_out(const NodeLayout& node, const Assignment& assignment, bool result, size_t t) const {
  Sharding sharding = spmd::laid_out(layout_, node, assignment, result, t);
  if (result)
    for (size_t s = 0; s < node.subfactors.size(); ++s) {
      const ops::Factor& factor = node.rule.factors[node.subfactors[s].factor];
      if (!factor.makes_partial() || runs_along(node.subfactors[s], t)) continue;
      // An axis of one rank leaves nothing to reduce.
      for (const AxisRef& axis : assignment[s])
        if (axis.size > 1) sharding.partial.push_back({axis, factor.reduction});
    }
  return sharding;
}

double PartialTerms::local_bytes(const Sharding& sharding, DType dtype) const {
  return hinted(largest_shard(sharding, mesh_), hints_) * bits_of(dtype) / 8;
}

// The layout of an operand as its maker leaves it, if it is partial; else null.
const Sharding* PartialTerms::partial_layout(const NodeLayout& node, size_t t) const {
  if (node.operand_slots[t] < 0) return nullptr;
  const auto* known = versions_.find(node.node->inputs[t]);
  return known && known->size() == 1 && known->front().is_partial() ? &known->front() : nullptr;
}

// Adds axes; false if one of them overlaps another without being equal.
bool PartialTerms::unite(std::vector<PartialAxis>& axes, const std::vector<PartialAxis>& more) {
  for (const PartialAxis& added : more) {
    if (std::find(axes.begin(), axes.end(), added) != axes.end()) continue;
    if (std::any_of(axes.begin(), axes.end(), [&](const auto& axis) { return axis.axis.overlaps(added.axis); }))
      return false;
    axes.push_back(added);
  }
  return true;
}

PartialTerms::Kept PartialTerms::kept(const NodeLayout& node, const Assignment& assignment) const {
  Kept found;
  auto& [axes, operands, held] = found;
  double reduced_bytes = 0;
  for (size_t t = 0; t < node.operand_slots.size(); ++t) {
    const Sharding* layout = partial_layout(node, t);
    if (!layout) continue;
    const Value* operand = node.node->inputs[t];
    // Another use needs it, too: if it is reduced here, one reduction serves all.
    if (operand->uses.size() > 1 || leaves_.contains(operand)) return {};
    if (!unite(axes, layout->partial)) return {};
    // Partial sums of 16-bit operands are float32 or 16-bit, depending on their producer; one operator must not mix
    // them.
    if (!operands.empty() && wide_.contains(operand) != wide_.contains(node.node->inputs[operands.front()])) return {};
    operands.push_back(static_cast<int>(t));
    reduced_bytes += local_bytes(laid_out(node, assignment, false, t), operand->dtype());
  }
  if (axes.empty()) return {};
  for (const PartialAxis& partial : axes)
    if (overlaps(node.at, partial.axis)) return {};
  for (const auto& list : assignment)
    for (const AxisRef& axis : list)
      for (const PartialAxis& partial : axes)
        if (partial.axis.overlaps(axis)) return {};
  const bool alike = std::all_of(operands.begin(), operands.end(), [&](int t) {
    return partial_layout(node, static_cast<size_t>(t))->partial.size() == axes.size();
  });
  const bool kept =
      alike && std::all_of(axes.begin(), axes.end(), [&](const PartialAxis& axis) {
        return std::any_of(node.rule.partials.begin(), node.rule.partials.end(), [&](const ops::PartialSet& set) {
          return set.operands == operands && allows(set, axis, node);
        });
      });
  if (!kept) {
    const auto terms = terms_of_sum(node, operands, axes);
    if (!terms || (alike && operands.size() == 1 && !other_term(node, axes))) return {};
    for (int t : *terms) {
      HeldTerm term{t, {}};
      const Sharding* layout = partial_layout(node, static_cast<size_t>(t));
      for (const PartialAxis& axis : axes)
        if (!layout || std::find(layout->partial.begin(), layout->partial.end(), axis) == layout->partial.end())
          term.along.push_back(axis.axis);
      if (!term.along.empty()) held.push_back(std::move(term));
    }
  }
  // A 16-bit operand that is not partial would meet float32 sums.
  for (size_t t = 0; t < node.operand_slots.size(); ++t) {
    const Value* operand = node.node->inputs[t];
    bool partial = std::find(operands.begin(), operands.end(), static_cast<int>(t)) != operands.end();
    if (operand && !partial && is_float(operand->dtype()) && bits_of(operand->dtype()) == 16) return {};
  }
  double result_bytes = 0;
  for (size_t t = 0; t < node.result_slots.size(); ++t)
    if (node.result_slots[t] >= 0)
      result_bytes += local_bytes(laid_out(node, assignment, true, t), node.node->outputs[t]->dtype());
  if (result_bytes > reduced_bytes) return {};
  return found;
}

Assignment PartialTerms::without_partial_axes(const NodeLayout& node, Assignment assignment) const {
  for (size_t t = 0; t < node.operand_slots.size(); ++t) {
    const auto* known = versions_.find(node.node->inputs[t]);
    if (node.operand_slots[t] < 0 || !known) continue;
    const auto& partial = known->front().partial;
    const auto is_partial = [&](const AxisRef& axis) {
      return std::any_of(partial.begin(), partial.end(), [&](const PartialAxis& sum) { return sum.axis == axis; });
    };
    for (auto& axes : assignment)
      while (!axes.empty() && is_partial(axes.back())) axes.pop_back();
  }
  return assignment;
}

// The sum that is the only use of the node's only result; null if there is none.
const Node* PartialTerms::sum_of(const Node* at, const std::vector<PartialAxis>& axes) const {
  if (at->outputs.size() != 1 || at->outputs[0]->uses.size() != 1 || leaves_.contains(at->outputs[0])) return nullptr;
  const Use use = at->outputs[0]->uses.front();
  return terms_of_sum(layout_.of(use.node), {static_cast<int>(use.index)}, axes) ? use.node : nullptr;
}

const Value* PartialTerms::other_term(const NodeLayout& node, const std::vector<PartialAxis>& axes) const {
  const Node* at = node.node;
  while (const Node* sum = sum_of(at, axes)) {
    const int own = static_cast<int>(at->outputs[0]->uses.front().index);
    for (int term : *terms_of_sum(layout_.of(sum), {own}, axes))
      if (term != own && becomes_partial(sum->inputs[term], axes)) return sum->inputs[term];
    at = sum;
  }
  return nullptr;
}

std::vector<const Value*> PartialTerms::other_terms(const NodeLayout& node,
                                                    const std::vector<PartialAxis>& axes) const {
  std::vector<const Value*> terms;
  const Node* at = node.node;
  while (const Node* sum = sum_of(at, axes)) at = sum;
  if (at != node.node) add_terms(at, node.node->outputs[0], axes, terms);
  return terms;
}

void PartialTerms::add_terms(const Node* sum, const Value* own, const std::vector<PartialAxis>& axes,
                             std::vector<const Value*>& terms) const {
  for (int t : *terms_of_sum(layout_.of(sum), {}, axes)) {
    const Value* term = sum->inputs[t];
    if (!term || term == own) continue;
    const Node* maker = term->producer;
    if (becomes_partial(term, axes))
      terms.push_back(term);
    else if (maker && sum_of(maker, axes) == sum && terms_of_sum(layout_.of(maker), {}, axes))
      add_terms(maker, own, axes, terms);
  }
}

bool PartialTerms::becomes_partial(const Value* value, const std::vector<PartialAxis>& axes) const {
  if (!value || !value->producer || value->uses.size() != 1) return false;
  const NodeLayout& node = layout_.of(value->producer);
  return std::any_of(node.subfactors.begin(), node.subfactors.end(), [&](const SubFactor& sub) {
    if (!node.rule.factors[sub.factor].makes_partial()) return false;
    return std::any_of(sub.places.begin(), sub.places.end(), [&](const Place& place) {
      const auto& split = layout_.slots[place.slot].dims[place.dim].parts[place.part].axes;
      return std::any_of(split.begin(), split.end(), [&](const AxisRef& axis) {
        return std::any_of(axes.begin(), axes.end(),
                           [&](const PartialAxis& partial) { return partial.axis.overlaps(axis); });
      });
    });
  });
}

}  // namespace tessera::spmd

#include "tessera/spmd/layout/storage.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "tessera/ops/op.h"

namespace tessera::spmd {
namespace {

bool works_on_elements(const Node& node) {
  return ops::op_of(node).pass_through;
}

// A sum of all elements works on any layout, and leaves one number per rank to add up.
bool sums_all_elements(const Node& node) {
  if (node.outputs.size() != 1 || !product(node.output()->shape()).is(1)) return false;
  const ops::Rule rule = ops::op_of(node).rule(node);
  return !rule.factors.empty() && std::all_of(rule.factors.begin(), rule.factors.end(),
                                              [](const ops::Factor& factor) { return factor.makes_partial(); });
}

bool are_as_many(const Value& value, const Expr& count) {
  return value.has_shape() && product(value.shape()) == count;
}

class Region {
 public:
  std::set<const Node*> nodes;

  void grow_from(const Node* node, const Expr& count) {
    std::vector<const Node*> open;
    const auto add = [&](const Node* next) {
      const bool updates = next && (works_on_elements(*next) ? makes(*next, count) : sums_all_elements(*next));
      if (updates && nodes.insert(next).second) open.push_back(next);
    };
    add(node);
    while (!open.empty()) {
      const Node* at = open.back();
      open.pop_back();
      for (const auto* values : {&at->inputs, &at->outputs})
        for (const Value* value : *values) {
          if (!value || !are_as_many(*value, count) || value->kind == ValueKind::constant) continue;
          add(value->producer);
          if (value->producer)  // a state or input has other uses, which are not updates
            for (const Use& use : value->uses) add(use.node);
        }
    }
  }

 private:
  static bool makes(const Node& node, const Expr& count) {
    return std::any_of(node.outputs.begin(), node.outputs.end(),
                       [&](const Value* result) { return result && are_as_many(*result, count); });
  }
};

}  // namespace

std::set<const Node*> updates_of(const Graph& graph, const Storage& storage) {
  Region region;
  for (const auto& state : graph.values()) {
    if (!state->changing || !storage.contains(state.get())) continue;
    if (state->next) region.grow_from(state->next->producer, product(state->shape()));
  }
  return std::move(region.nodes);
}

std::set<const Node*> update_of(const Value& state) {
  Region region;
  region.grow_from(state.next->producer, product(state.shape()));
  return std::move(region.nodes);
}

std::set<const Node*> scattered_sums(const Storage& storage) {
  std::set<const Node*> all;
  for (const auto& [state, sharding] : storage) {
    if (!state->next || !state->next->producer || sharding.is_whole()) continue;
    const std::set<const Node*> update = update_of(*state);
    if (std::any_of(state->uses.begin(), state->uses.end(), [&](const Use& use) { return !update.contains(use.node); }))
      std::copy_if(update.begin(), update.end(), std::inserter(all, all.end()),
                   [](const Node* node) { return node->seat.micro_batch < 0; });
  }
  return all;
}

ValueSet fetched_values(const Graph& graph, const Storage& storage) {
  ValueSet fetched;
  for (const auto& [state, sharding] : storage) fetched.insert(state);
  for (const auto& node : graph.nodes()) {
    if (!works_on_elements(*node)) continue;
    bool any = false, all = true;
    for (const Value* operand : node->inputs) {
      if (!operand || operand->kind == ValueKind::constant || operand->kind == ValueKind::expression) continue;
      any = true;
      all &= fetched.contains(operand);
    }
    if (any && all)
      for (const Value* result : node->outputs) fetched.insert(result);
  }
  return fetched;
}

}  // namespace tessera::spmd

#include "tessera/spmd/decide/repeats.h"

#include <algorithm>
#include <bit>

#include "tessera/spmd/decide/costs.h"
#include "tessera/spmd/program.h"

namespace tessera::spmd {
namespace {

void mix(size_t& hash, size_t value) {
  hash = (hash ^ value) * 1099511628211U;
}

void add_ints(Repeats::Key& key, const std::vector<int>& numbers) {
  key.push_back(static_cast<int64_t>(numbers.size()));
  key.insert(key.end(), numbers.begin(), numbers.end());
}

}  // namespace

size_t Repeats::Hash::operator()(const Key& key) const {
  size_t hash = key.size();
  for (const int64_t word : key) mix(hash, static_cast<size_t>(word));
  return hash ^ hash >> 32;
}

size_t Repeats::Hash::operator()(const Sharding& sharding) const {
  size_t hash = sharding.dims.size();
  const auto add_axis = [&](const AxisRef& axis) {
    mix(hash, std::hash<std::string>()(axis.axis));
    mix(hash, static_cast<size_t>(axis.pre));
    mix(hash, static_cast<size_t>(axis.size));
  };
  for (const DimSharding& dim : sharding.dims)
    for (const Part& part : dim.parts) {
      mix(hash, static_cast<size_t>(part.size.constant().value_or(-1)));
      mix(hash, part.axes.size());
      for (const AxisRef& axis : part.axes) add_axis(axis);
    }
  for (const PartialAxis& partial : sharding.partial) add_axis(partial.axis);
  for (const PlacedAxis& place : sharding.at) add_axis(place.axis);
  return hash ^ hash >> 32;
}

Repeats::Repeats(const Layout& layout, const Costs& costs, const Storage& storage,
                 const std::set<const Node*>& scattered)
    : layout_(layout) {
  for (const Slot& slot : layout.slots) slots_.push_back(number_of(slot.sharding()));
  const ValueSet ordered = ordered_states(layout);
  std::unordered_map<Key, int64_t, Hash> classes;
  for (const NodeLayout& node : layout.nodes) {
    Key key = described(node, storage, ordered);
    key.push_back(scattered.contains(node.node));
    if (costs.in_seconds()) key.push_back(std::bit_cast<int64_t>(hinted(ops::flops_of(*node.node), costs.hints())));
    classes_.push_back(classes.emplace(std::move(key), static_cast<int64_t>(classes.size())).first->second);
  }
}

int64_t Repeats::number_of(const Sharding& sharding) {
  return shardings_.emplace(sharding, static_cast<int64_t>(shardings_.size())).first->second;
}

// The same, for layouts of decisions, whose dimensions many nodes share.
int64_t Repeats::number_of_shared(const Sharding& sharding) {
  const void* dims = sharding.dims.identity();
  if (!dims || !sharding.partial.empty() || !sharding.at.empty()) return number_of(sharding);
  const auto known = by_dims_.find(dims);
  if (known != by_dims_.end()) return known->second.second;
  const int64_t number = number_of(sharding);
  by_dims_.emplace(dims, std::pair(sharding.dims, number));
  return number;
}

int64_t Repeats::number_of(const std::string& text) {
  return texts_.emplace(text, static_cast<int64_t>(texts_.size())).first->second;
}

void Repeats::add_to(Key& key, const Expr& size) {
  const auto constant = size.constant();
  key.push_back(constant.has_value());
  key.push_back(constant ? *constant : number_of(size.str()));
}

void Repeats::add_to(Key& key, const ops::Rule& rule) {
  for (const ops::Factor& factor : rule.factors) {
    key.push_back(static_cast<int64_t>(factor.kind));
    key.push_back(static_cast<int64_t>(factor.reduction));
    add_to(key, factor.size);
    add_to(key, factor.rounds);
    add_ints(key, factor.flat);
    key.push_back(static_cast<int64_t>(factor.windows.size()));
    for (const auto& [operand, window] : factor.windows) {
      key.insert(key.end(), {operand, window.times, window.over, window.slack, static_cast<int64_t>(window.beyond)});
      add_to(key, window.first);
      add_to(key, window.last);
    }
  }
  for (const auto* tensors : {&rule.operands, &rule.results})
    for (const std::vector<ops::DimFactors>& dims : *tensors) {
      key.push_back(static_cast<int64_t>(dims.size()));
      for (const ops::DimFactors& factors : dims) add_ints(key, factors);
    }
}

void Repeats::add_to(Key& key, const SubFactor& subfactor) {
  key.insert(key.end(), {subfactor.factor, subfactor.index, subfactor.splittable});
  add_to(key, subfactor.size);
  key.push_back(static_cast<int64_t>(subfactor.places.size()));
  for (const Place& place : subfactor.places)
    key.insert(key.end(), {place.result, place.tensor, place.dim, place.part});
}

Repeats::Key Repeats::described(const NodeLayout& node, const Storage& storage, const ValueSet& ordered) {
  Key key = {number_of(node.node->op_type), number_of(node.node->domain), node.updates};
  add_to(key, node.rule);
  key.push_back(static_cast<int64_t>(node.subfactors.size()));
  for (const SubFactor& subfactor : node.subfactors) add_to(key, subfactor);
  for (const PlacedAxis& place : node.at)
    key.insert(key.end(), {number_of(place.axis.axis), place.axis.pre, place.axis.size, place.index});
  const auto add_tensor = [&](const Value* value, int number) {
    const Slot& slot = layout_.slots[static_cast<size_t>(number)];
    key.insert(key.end(), {slots_[static_cast<size_t>(number)], static_cast<int64_t>(value->dtype()), slot.annotated,
                           slot.stored});
  };
  const std::vector<Value*>& operands = node.node->inputs;
  for (size_t t = 0; t < node.operand_slots.size(); ++t) {
    key.push_back(std::find(operands.begin(), operands.end(), operands[t]) - operands.begin());
    key.push_back(operands[t] ? static_cast<int64_t>(operands[t]->dtype()) : -1);
    if (node.operand_slots[t] < 0) continue;
    add_tensor(operands[t], node.operand_slots[t]);
    const auto stored = storage.find(operands[t]);
    key.push_back(stored == storage.end() ? -1 : number_of(stored->second));
    key.insert(key.end(), {operands[t]->producer != nullptr, ordered.contains(operands[t])});
  }
  for (size_t t = 0; t < node.result_slots.size(); ++t) {
    key.push_back(node.result_slots[t] >= 0);
    if (node.result_slots[t] < 0) continue;
    add_tensor(node.node->outputs[t], node.result_slots[t]);
    for (const int slot : layout_.of_value.at(node.node->outputs[t])) key.push_back(slots_[static_cast<size_t>(slot)]);
  }
  return key;
}

// The layouts that uses want of a value, and whether a use beside the user wants them.
void Repeats::add_wishes(Key& key, const Value* value, const Node* user, const Decided& decided) {
  const auto& wishes = decided.wishes->of(value);
  key.push_back(static_cast<int64_t>(wishes.size()));
  for (const Wishes::Wish& wish : wishes) {
    key.push_back(number_of_shared(wish.layout));
    key.push_back(wish.is_of_others(user));
  }
}

// The same for an operand, and for the values above it from which movements make it (way_up).
void Repeats::add_way(Key& key, const Value* value, const Node* user, const Decided& decided) {
  for (; value->producer; value = value->producer->inputs[0]) {
    const size_t maker = layout_.index_of(value->producer);
    key.push_back(classes_[maker]);
    add_wishes(key, value, user, decided);
    const bool fetched = decided.fetched.contains(value);
    key.push_back(fetched);
    if (fetched || layout_.nodes[maker].moves < ops::Moves::all) break;
  }
  key.push_back(-1);
}

// What the node's decision depends on; nullopt if it depends on more than a key can hold.
std::optional<Repeats::Key> Repeats::key_of(const NodeLayout& node, const Decided& decided) {
  if (Layout::carry_of(*node.node) || is_priced(node)) return std::nullopt;
  Key key = {classes_[layout_.index_of(node.node)], decided.before != nullptr};
  for (size_t t = 0; t < node.operand_slots.size(); ++t) {
    if (node.operand_slots[t] < 0) continue;
    const Value* value = node.node->inputs[t];
    const bool fetched = decided.fetched.contains(value);
    key.insert(key.end(), {decided.wide.contains(value), fetched});
    const auto* known = decided.versions.find(value);
    key.push_back(known ? static_cast<int64_t>(known->size()) : -1);
    if (!known) continue;
    if (known->front().is_partial()) return std::nullopt;
    for (const Sharding& version : *known) key.push_back(number_of_shared(version));
    if (decided.before && !fetched) add_way(key, value, node.node, decided);
  }
  for (size_t t = 0; t < node.result_slots.size(); ++t) {
    if (node.result_slots[t] < 0) continue;
    key.push_back(decided.fetched.contains(node.node->outputs[t]));
    if (decided.wishes) add_wishes(key, node.node->outputs[t], nullptr, decided);
  }
  return key;
}

Outcome Repeats::of(const NodeLayout& node, const Decided& decided, FunctionRef<Outcome()> compute) {
  std::optional<Key> key = key_of(node, decided);
  if (key)
    if (const auto known = outcomes_.find(*key); known != outcomes_.end()) return known->second;
  ++computed_;
  Outcome outcome = compute();
  if (key) outcomes_.emplace(std::move(*key), outcome);
  return outcome;
}

}  // namespace tessera::spmd

#include "tessera/stages/one_batch.h"

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/ops/op.h"

namespace tessera::stages {
namespace {

using Part = std::vector<const Node*>;

// The nodes of each micro-batch, by its number. Those of other numbers than 0, 1, … are refused.
std::vector<Part> parts_of(const Graph& graph) {
  std::map<int, Part> found;
  for (const auto& node : graph.nodes())
    if (node->seat.micro_batch >= 0) found[node->seat.micro_batch].push_back(node.get());
  std::vector<Part> parts;
  for (auto& [number, nodes] : found) {
    check(number == static_cast<int>(parts.size()), "micro-batches are numbered from 0");
    parts.push_back(std::move(nodes));
  }
  return parts;
}

size_t result_of(const Value& value) {
  const auto& outputs = value.producer->outputs;
  return static_cast<size_t>(std::find(outputs.begin(), outputs.end(), &value) - outputs.begin());
}

// Whether the operand of a later micro-batch stands where that of the first does. What the first takes from outside,
// another may take from elsewhere: other rows of the batch, a statistic as the one before has left it.
bool same_place(const Value* first, const Value* other, int part, const std::map<const Node*, size_t>& place) {
  if (!first || !other) return first == other;
  const Node *maker = first->producer, *others = other->producer;
  const bool inside = maker && maker->seat.micro_batch == 0, inside_other = others && others->seat.micro_batch == part;
  if (inside != inside_other) return false;
  return !inside || (place.at(maker) == place.at(others) && result_of(*first) == result_of(*other));
}

void require_alike(const std::vector<Part>& parts) {
  std::map<const Node*, size_t> place;
  for (const Part& part : parts)
    for (size_t i = 0; i < part.size(); ++i) place[part[i]] = i;
  for (size_t p = 1; p < parts.size(); ++p) {
    if (parts[p].size() != parts[0].size())
      fail("pipeline", "micro-batch 0 has {} nodes, but micro-batch {} has {}; all must be alike", parts[0].size(), p,
           parts[p].size());
    for (size_t i = 0; i < parts[p].size(); ++i) {
      const Node &first = *parts[0][i], &other = *parts[p][i];
      bool alike = first.op_type == other.op_type && first.domain == other.domain &&
                   first.inputs.size() == other.inputs.size() && first.outputs.size() == other.outputs.size();
      for (size_t o = 0; alike && o < first.inputs.size(); ++o)
        alike = same_place(first.inputs[o], other.inputs[o], static_cast<int>(p), place);
      if (!alike)
        fail("pipeline", "micro-batch {} has {} where micro-batch 0 has {}; all micro-batches must be alike", p,
             other.label(), first.label());
    }
  }
}

}  // namespace

OneBatch::OneBatch(const Graph& graph) {
  const std::vector<Part> parts = parts_of(graph);
  require_alike(parts);
  parts_ = std::max(1, static_cast<int>(parts.size()));
  for (const auto& node : graph.nodes()) {
    if (node->number >= index_.size()) index_.resize(node->number + 1, -1);
    if (node->seat.micro_batch > 0) continue;
    index_[node->number] = size();
    nodes_.push_back(node.get());
  }
  for (size_t p = 1; p < parts.size(); ++p)
    for (size_t i = 0; i < parts[p].size(); ++i) index_[parts[p][i]->number] = index_[parts[0][i]->number];
  operands_.resize(nodes_.size());
  readers_.resize(nodes_.size());
  for (int i = 0; i < size(); ++i) {
    auto& operands = operands_[static_cast<size_t>(i)];
    for (size_t o = 0; o < node(i).inputs.size(); ++o) {
      if (!node(i).inputs[o] || !ops::reads_elements(node(i), o)) continue;
      const Value* value = first(node(i).inputs[o]);
      const bool known =
          std::any_of(operands.begin(), operands.end(), [&](const Operand& other) { return other.value == value; });
      if (!known) operands.push_back({value, maker(value)});
    }
    for (const Operand& operand : operands) {
      if (operand.made_by < 0) continue;
      auto& readers = readers_[static_cast<size_t>(operand.made_by)];
      if (readers.empty() || readers.back() != i) readers.push_back(i);
    }
  }
}

const Value* OneBatch::first(const Value* value) const {
  if (!value->producer || value->producer->seat.micro_batch <= 0) return value;
  return node(index_of(*value->producer)).outputs[result_of(*value)];
}

}  // namespace tessera::stages

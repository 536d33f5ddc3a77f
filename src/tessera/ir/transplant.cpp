#include "tessera/ir/transplant.h"

#include <utility>

namespace tessera {

bool Transplant::copy(const Node& node, std::vector<Value*> results) {
  auto made = std::make_unique<Node>(node);
  for (Value*& operand : made->inputs) {
    if (!operand) continue;
    operand = operand->producer ? known_.at(operand) : source(*operand);
    if (!operand) return false;
  }
  for (size_t i = 0; i < results.size(); ++i)
    if (node.outputs[i]) known_[node.outputs[i]] = results[i];
  made->outputs = std::move(results);
  to_.adopt_node(std::move(made));
  return true;
}

Value* Transplant::source(const Value& value) {
  auto [found, fresh] = known_.emplace(&value, nullptr);
  if (!fresh) return found->second;
  Value* same = to_.find(value.name);
  if (!same) {
    same = to_.add_value(value.name, value.kind, value.type);
    same->data = value.data;
    same->content = value.content;
    same->changing = value.changing;
    same->origin = value.origin;
    same->rows = value.rows;
    same->extra = value.extra;
    same->data_extra = value.data_extra;
    if (value.kind == ValueKind::input) to_.inputs.push_back(same);
  }
  return found->second = same->kind == value.kind && same->type == value.type ? same : nullptr;
}

std::set<const Node*> makers_of(const Graph& graph, const std::vector<Value*>& results) {
  std::set<const Node*> makers;
  for (const Value* result : results)
    if (result->producer) makers.insert(result->producer);
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    if (!makers.contains(node->get())) continue;
    for (const Value* operand : (*node)->inputs)
      if (operand && operand->producer) makers.insert(operand->producer);
  }
  return makers;
}

}  // namespace tessera

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>

#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

/// Two nodes with equal keys compute the same. Nullopt: never merged.
std::optional<std::string> equality_key(const Node& node) {
  const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
  if (!op) return std::nullopt;
  if (!node.domain.empty()) return std::nullopt;  // a communication that is written twice runs twice
  std::string key = node.op_type;
  for (const Value* operand : node.inputs) key += operand ? ";" + operand->name : ";";
  key += fmt::format("|{}", node.outputs.size());
  std::map<std::string, const AttributeValue*> sorted;
  for (const Attribute& attribute : node.attributes) sorted[attribute.name] = &attribute.value;
  for (const auto& [name, value] : sorted) {
    key += "|" + name + "=";
    bool plain = std::visit(
        [&](const auto& held) {
          using T = std::decay_t<decltype(held)>;
          if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, float> || std::is_same_v<T, std::string>) {
            key += fmt::format("{}", held);
            return true;
          } else if constexpr (std::is_same_v<T, std::vector<int64_t>> || std::is_same_v<T, std::vector<float>>) {
            key += fmt::format("{}", fmt::join(held, ","));
            return true;
          } else {
            return false;
          }
        },
        *value);
    if (!plain) return std::nullopt;
  }
  return key;
}

/// Merges small constants and expressions with the same elements.
void merge_leaves(Graph& graph) {
  std::map<std::tuple<DType, std::string, std::string>, Value*> seen;
  for (ValueKind kind : {ValueKind::constant, ValueKind::expression})
    for (Value* value : graph.values_of(kind)) {
      if (!value->has_shape() || value->data.bytes > 1024 || graph.is_output(value)) continue;
      std::string elements = kind == ValueKind::constant
                                 ? std::string(reinterpret_cast<const char*>(value->data.data), value->data.bytes)
                                 : to_string(*value->content);
      if (value->dtype() == DType::string) continue;
      auto [first, added] = seen.emplace(std::tuple(value->dtype(), to_string(value->shape()), elements), value);
      if (!added && first->second->kind == kind) replace(graph, value, first->second);
    }
}

}  // namespace

void merge_equal(OnnxModel& model) {
  Graph& graph = *model.graph;
  merge_leaves(graph);
  std::unordered_map<std::string, Node*> seen;
  for (Node* node : nodes_of(graph)) {
    auto key = equality_key(*node);
    if (!key) continue;
    auto [first, added] = seen.emplace(*key, node);
    if (added) continue;
    for (size_t i = 0; i < node->outputs.size(); ++i) {
      Value* kept = first->second->outputs[i];
      if (node->outputs[i] && kept && !graph.is_output(node->outputs[i])) replace(graph, node->outputs[i], kept);
    }
  }
  graph.erase_dead();
}

}  // namespace tessera::rewrite

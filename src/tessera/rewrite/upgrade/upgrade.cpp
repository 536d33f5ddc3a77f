#include <array>
#include <map>

#include "tessera/base/error.h"
#include "tessera/ir/attention_window.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower/lower.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/pipeline.h"
#include "tessera/rewrite/upgrade/steps.h"

namespace tessera::rewrite {

void set_numbers(Graph& graph, Node* node, size_t index, std::vector<int64_t> numbers) {
  graph.set_input(node, index, graph.constant_int64(std::move(numbers)));
}

void move_to_operand(Graph& graph, Node* node, std::string_view attribute, size_t index) {
  const auto* numbers = node->get<std::vector<int64_t>>(attribute);
  if (!numbers) return;
  set_numbers(graph, node, index, *numbers);
  node->remove_attribute(attribute);
}

Value* untyped(Graph& graph, std::string_view type, std::vector<Value*> operands, const Node* before,
               std::vector<Attribute> attributes) {
  Node* node = graph.add_node(type, std::move(operands), {""}, "", before);
  node->attributes = std::move(attributes);
  return node->outputs[0];
}

namespace {

/// An attribute that appeared after kCanonicalOpset, and its neutral value.
struct NewerAttribute {
  std::string_view op_type, name;
  AttributeValue neutral;
  bool understood = false;  ///< other values are supported, too
};

void drop_newer_attributes(Node* node) {
  static const std::array<NewerAttribute, 4> newer = {{
      {"Attention", "left_window_size", int64_t{-1}, true},
      {"Attention", "right_window_size", int64_t{-1}, true},
      {"Range", "stash_type", int64_t{1}},
      {"SpaceToDepth", "mode", std::string("DCR")},
  }};
  for (const NewerAttribute& candidate : newer) {
    if (!node->is(candidate.op_type) || !node->find_attribute(candidate.name)) continue;
    const AttributeValue& value = node->find_attribute(candidate.name)->value;
    bool neutral = std::visit(
        [&](const auto& wanted) {
          using T = std::decay_t<decltype(wanted)>;
          if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, std::string>)
            return std::holds_alternative<T>(value) && std::get<T>(value) == wanted;
          else
            return false;
        },
        candidate.neutral);
    neutral |= candidate.name.ends_with("_window_size") && window_of(*node, candidate.name) < 0;
    if (!neutral && (candidate.understood || lowering_of(*node))) continue;
    if (!neutral)
      fail("upgrade", "{}: {} is newer than opset {}, and only its default is supported; export with that",
           node->label(), candidate.name, kCanonicalOpset);
    node->remove_attribute(candidate.name);
  }
}

/// By operator, older forms first.
const std::multimap<std::string, UpgradeStep, std::less<>>& steps() {
  static const auto all = [] {
    std::multimap<std::string, UpgradeStep, std::less<>> table;
    for (auto family : {early_steps, late_steps})
      for (const UpgradeStep& step : family()) table.emplace(step.op_type, step);
    return table;
  }();
  return all;
}

void upgrade_node(Graph& graph, Node* node, int64_t version) {
  drop_newer_attributes(node);
  // If a step erases the node, it is the last one for its operator.
  auto [first, last] = steps().equal_range(node->op_type);
  for (auto step = first; step != last && node->op_type == step->first; ++step)
    if (version < step->second.before) step->second.apply(graph, node, version);
}

void upgrade_graph(Graph& graph, int64_t version) {
  for (Node* node : nodes_of(graph)) {
    if (node->domain == "ai.onnx") node->domain.clear();
    for (Graph* region : node->regions()) upgrade_graph(*region, version);
    const int64_t own_version = node->get_int(kOpsetStamp, version);
    node->remove_attribute(kOpsetStamp);
    if (node->domain.empty()) naming_call(*node, [&] { upgrade_node(graph, node, own_version); });
  }
}

}  // namespace

void upgrade(OnnxModel& model) {
  upgrade_graph(*model.graph, model.opset());
  model.opset_imports.erase("ai.onnx");
  model.opset_imports[""] = kCanonicalOpset;
}

}  // namespace tessera::rewrite

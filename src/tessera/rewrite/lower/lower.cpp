#include "tessera/rewrite/lower/lower.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "tessera/base/error.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"

namespace tessera::rewrite {
namespace {

const std::multimap<std::string_view, Lowering>& lowering_table() {
  static const auto all = [] {
    std::multimap<std::string_view, Lowering> rows;
    for (auto family :
         {attention_lowerings, experts_lowerings, fused_lowerings, image_lowerings, list_lowerings, microsoft_lowerings,
          qlinear_lowerings, quantization_lowerings, quantizer_lowerings, sequence_lowerings, signal_lowerings})
      for (Lowering& row : family()) rows.emplace(row.op_type, std::move(row));
    return rows;
  }();
  return all;
}

}  // namespace

std::vector<const Lowering*> all_lowerings() {
  std::vector<const Lowering*> all;
  for (const auto& [type, row] : lowering_table()) all.push_back(&row);
  return all;
}

const Lowering* lowering_of(const Node& node) {
  const auto [first, last] = lowering_table().equal_range(node.op_type);
  for (auto row = first; row != last; ++row)
    if (row->second.domain == node.domain && (!row->second.applies || row->second.applies(node))) return &row->second;
  return nullptr;
}

bool lower_operator(Graph& graph, Node* node, const std::function<void(Node*)>& open) {
  const Lowering* lowering = lowering_of(*node);
  if (!lowering) return false;
  std::string name = node->name;
  for (const Value* result : node->outputs)
    if (name.empty() && result) name = result->name;
  ops::NodeBuilder builder(graph, name, node);
  for (size_t i = 0; i < lowering->operands; ++i)
    if (!node->input(i)) fail("lower", "{}: its operand {} is missing; the file is damaged", node->label(), i);
  Lowerer lowerer{*node, builder, open};
  std::vector<Value*> results;
  try {
    results = lowering->lower(lowerer);
  } catch (const std::out_of_range&) {
    std::string shapes;
    for (const Value* operand : node->inputs)
      shapes += fmt::format("{}{}", shapes.empty() ? "" : ", ", operand ? to_string(operand->shape()) : "_");
    fail("lower", "{}: an operand has too few dimensions; the operands' shapes are {}", node->label(), shapes);
  }
  for (size_t i = 0; i < node->outputs.size(); ++i) {
    Value* result = node->outputs[i];
    if (!result) continue;
    if (i >= results.size() || !results[i])
      fail("lower", "{}: its result '{}' is not supported; leave it out", node->label(), result->name);
    result->type = results[i]->type;
    if (!replace(graph, result, results[i])) replace(graph, result, builder.emit("Identity", {results[i]}));
  }
  return true;
}

bool needs_value(const Node& node, size_t operand) {
  if (const Lowering* lowering = lowering_of(node))
    return std::find(lowering->values.begin(), lowering->values.end(), operand) != lowering->values.end();
  return ops::reads_values(node, operand);
}

}  // namespace tessera::rewrite

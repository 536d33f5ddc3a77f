#include "tessera/dialect/numbering.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "tessera/dialect/buckets.h"
#include "tessera/dialect/function_spec.h"
#include "tessera/dialect/schema.h"
#include "tessera/ir/text.h"
#include "tessera/onnx/metadata.h"
#include "tessera/spmd/program.h"

namespace tessera::dialect {
namespace {

std::string value_text(const AttributeValue& value) {
  return std::visit(
      [](const auto& held) -> std::string {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, Tensor>)
          return literal_text(held);
        else if constexpr (std::is_same_v<T, AttributeReference>)
          return "@" + held.name;
        else if constexpr (std::is_same_v<T, OpaqueAttribute>)
          return held.proto;
        else if constexpr (std::is_same_v<T, Region>)
          return print_text(*held, {.elide_above = std::numeric_limits<int64_t>::max()});
        else
          return fmt::format("{}", held);
      },
      value);
}

}  // namespace

std::string literal_text(const Tensor& tensor) {
  return fmt::format("{}[{}]{}", name_of(tensor.dtype), fmt::join(tensor.dims, ","),
                     std::string_view(reinterpret_cast<const char*>(tensor.data), tensor.bytes));
}

std::string attributes_text(const Node& node) {
  std::map<std::string, std::string> attributes;
  for (const Attribute& attribute : node.attributes)
    if ((attribute.name != spmd::kOrderAttribute && attribute.name != spmd::kBucketAttribute) || !communicates(node))
      attributes[attribute.name] = value_text(attribute.value);
  std::string text;
  for (const auto& [name, value] : attributes) text += fmt::format("|{}={}", name, value);
  return text;
}

const Function* called_by(const Node& node, const std::vector<Function>& functions) {
  auto found = std::find_if(functions.begin(), functions.end(), [&](const Function& function) {
    return function.domain == node.domain && function.name == node.op_type && function.overload == node.overload;
  });
  return found == functions.end() ? nullptr : &*found;
}

Numbering::Steps Numbering::number(const Function& function, const std::vector<Function>& functions) {
  Steps steps;
  std::map<const Value*, int> of;
  const Graph& body = *function.body;
  for (size_t i = 0; i < body.inputs.size(); ++i) of[body.inputs[i]] = id(fmt::format("operand {}", i));
  for (const auto& value : body.values())
    if (value->has_data()) of[value.get()] = id("literal " + literal_text(value->data));
  for (const auto& node : body.nodes()) {
    if (const auto* literal = node->is("Constant") ? node->get<Tensor>("value") : nullptr) {
      of[node->output()] = id("literal " + literal_text(*literal));
      continue;
    }
    const Function* callee = called_by(*node, functions);
    std::string text = callee ? "call of " + get_metadata(*callee, kFunctionKey).value_or(callee->name)
                              : node->domain + "." + node->op_type;
    text += attributes_text(*node);
    for (const Value* operand : node->inputs) text += fmt::format(";{}", operand ? of[operand] : -1);
    const bool ordered = callee || communicates(*node);
    if (ordered) text += fmt::format("#{}", steps.given.size());
    const int number = id(text);
    steps.all.emplace_back(number, node.get());
    if (ordered) steps.given.push_back(number);
    for (size_t r = 0; r < node->outputs.size(); ++r)
      if (node->outputs[r]) of[node->outputs[r]] = id(fmt::format("result {} of {}", r, number));
  }
  for (const Value* output : body.outputs) steps.given.push_back(of[output]);
  return steps;
}

}  // namespace tessera::dialect

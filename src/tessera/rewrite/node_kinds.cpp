#include "tessera/rewrite/node_kinds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <type_traits>

#include "tessera/ir/hash.h"

namespace tessera::rewrite {
namespace {

std::string key_of(const Tensor& tensor) {
  const uint64_t hash = tensor.data ? hash_of_bytes(tensor.data, tensor.bytes) : 0;
  return fmt::format("{}[{}]{:x}", name_of(tensor.dtype), fmt::join(tensor.dims, ","), hash);
}

std::string key_of(const TensorType& type) {
  std::string text(name_of(type.dtype));
  if (!type.shape) return text;
  text += '[';
  for (const Expr& extent : *type.shape) text += extent.str() + ',';
  return text + ']';
}

// A source by what it holds. States are the same whatever they hold.
std::string source_key(const Value& value) {
  if (value.kind == ValueKind::state)
    return fmt::format("s{}[{}]", name_of(value.data.dtype), fmt::join(value.data.dims, ","));
  return "c" + key_of(value.data);
}

/// The key of a node in a region, in which values have numbers.
class RegionKey {
 public:
  std::string of(const Graph& graph, const std::vector<std::string>& captures) {
    std::string key = fmt::format("{{{}", captures.size());
    std::map<std::string, size_t, std::less<>> captured;
    for (size_t i = 0; i < captures.size(); ++i) captured.emplace(captures[i], i);
    for (const Value* value : graph.values_of(ValueKind::input))
      if (const auto at = captured.find(value->name); at != captured.end()) {
        names_.emplace(value, fmt::format("^{}", at->second));
      }
    for (const Value* value : graph.inputs) key += number(value) + key_of(value->type) + ';';
    for (const auto& node : graph.nodes()) key += of(*node);
    for (const Value* value : graph.outputs) key += '=' + operand(value);
    return key + '}';
  }

 private:
  std::string of(const Node& node) {
    std::string key = tessera::rewrite::kind_of(node);
    for (const Value* value : node.inputs) key += operand(value) + ',';
    key += "->";
    for (const Value* value : node.outputs) key += value ? number(value) : "-";
    return key + ';';
  }
  std::string operand(const Value* value) {
    if (!value) return "-";
    return value->has_data() ? source_key(*value) + key_of(value->data) : number(value);
  }
  std::string number(const Value* value) {
    return names_.emplace(value, std::to_string(names_.size())).first->second + ' ';
  }

  std::map<const Value*, std::string> names_;
};

std::string key_of(const AttributeValue& value, const std::vector<std::string>& captures) {
  return std::visit(
      [&](const auto& each) -> std::string {
        using T = std::decay_t<decltype(each)>;
        if constexpr (std::is_same_v<T, int64_t>) return fmt::format("i{}", each);
        if constexpr (std::is_same_v<T, float>) return fmt::format("f{}", each);
        if constexpr (std::is_same_v<T, std::string>) return fmt::format("s{}:{}", each.size(), each);
        if constexpr (std::is_same_v<T, std::vector<int64_t>>) return fmt::format("I{}", fmt::join(each, ","));
        if constexpr (std::is_same_v<T, std::vector<float>>) return fmt::format("F{}", fmt::join(each, ","));
        if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          std::string text = "S";
          for (const std::string& one : each) text += fmt::format("{}:{}", one.size(), one);
          return text;
        }
        if constexpr (std::is_same_v<T, Tensor>) return "t" + key_of(each);
        if constexpr (std::is_same_v<T, Region>) return RegionKey().of(*each, captures);
        if constexpr (std::is_same_v<T, AttributeReference>) return fmt::format("r{}{}", each.type, each.name);
        if constexpr (std::is_same_v<T, OpaqueAttribute>) return fmt::format("o{}:{}", each.proto.size(), each.proto);
      },
      value);
}

}  // namespace

std::string kind_of(const Node& node) {
  std::string key = fmt::format("{}.{}.{}(", node.domain, node.op_type, node.overload);
  for (const Value* value : node.inputs)
    key += !value ? "-" : value->has_data() ? source_key(*value) + ',' : value->content ? "e" : "v";
  key += fmt::format("){}->", node.captures.size());
  for (const Value* value : node.outputs) key += value ? '+' : '-';
  std::map<std::string, std::string> attributes;
  for (const Attribute& attribute : node.attributes)
    attributes.emplace(attribute.name, key_of(attribute.value, node.captures));
  for (const auto& [name, value] : attributes) key += fmt::format(" {}={}", name, value);
  return key;
}

}  // namespace tessera::rewrite

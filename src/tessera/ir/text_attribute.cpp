#include "tessera/ir/text_attribute.h"

#include <array>
#include <charconv>
#include <utility>

#include "tessera/ir/text_tensor.h"
#include "tessera/ir/text_value.h"

namespace tessera::text {
namespace {

struct AttributeType {
  int number;
  std::string_view name;
};
constexpr std::array kAttributeTypes = {
    AttributeType{1, "float"},          AttributeType{2, "int"},
    AttributeType{3, "string"},         AttributeType{4, "tensor"},
    AttributeType{5, "graph"},          AttributeType{6, "floats"},
    AttributeType{7, "ints"},           AttributeType{8, "strings"},
    AttributeType{9, "tensors"},        AttributeType{10, "graphs"},
    AttributeType{11, "sparse_tensor"}, AttributeType{12, "sparse_tensors"},
    AttributeType{13, "type_proto"},    AttributeType{14, "type_protos"},
};

template <typename T>
T number(const Scanner& in, size_t at, std::string_view literal) {
  std::string_view digits = literal.substr(literal[0] == '+' ? 1 : 0);
  T value{};
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size())
    in.fail_at(at, fmt::format("'{}' is not a {}", literal, std::is_same_v<T, float> ? "float" : "64-bit integer"));
  return value;
}

AttributeValue parse_list(Scanner& in, const std::string& type) {
  size_t start = in.position();
  in.expect("[");
  std::vector<std::string> strings;
  std::vector<std::pair<size_t, std::string_view>> numbers;
  bool floating = type == "floats";
  in.items("]", [&] {
    size_t at = in.position();
    if (in.at_quoted()) {
      strings.push_back(in.quoted("a string"));
      return;
    }
    numbers.emplace_back(at, in.number("a number or a string"));
    floating = floating || (type.empty() && is_floating_literal(numbers.back().second));
  });
  bool wants_strings = type == "strings" || (type.empty() && !strings.empty());
  if (!strings.empty() && (!numbers.empty() || !wants_strings))
    in.fail_at(start, "a list holds integers, floats or strings, not a mixture");
  if (strings.empty() && numbers.empty() && type.empty())
    in.fail_at(start, "an empty list needs its type, as in axes: ints = []");
  if (wants_strings) return strings;
  if (floating) {
    std::vector<float> values;
    for (const auto& [at, literal] : numbers) values.push_back(number<float>(in, at, literal));
    return values;
  }
  std::vector<int64_t> values;
  for (const auto& [at, literal] : numbers) values.push_back(number<int64_t>(in, at, literal));
  return values;
}

Tensor parse_tensor(Scanner& in, DType dtype, const std::string& name) {
  size_t at = in.position();
  in.identifier("a type");
  std::vector<size_t> unknown;
  TensorType declared = parse_type(in, dtype, unknown);
  auto dims = declared.shape && unknown.empty() ? constants_of(*declared.shape) : std::nullopt;
  if (!dims) in.fail_at(at, fmt::format("the tensor '{}' needs extents in numbers", name));
  return parse_elements(in, dtype, *dims, fmt::format("'{}'", name));
}

}  // namespace

AttributeSyntax parse_attribute(Scanner& in, size_t at, std::string name, const std::function<GraphSyntax()>& graph) {
  AttributeSyntax attribute{at, std::move(name), {}, nullptr};
  std::string type;
  if (in.take(":")) {
    size_t type_at = in.position();
    type = in.identifier("an attribute's type");
    if (type != "undefined" && !attribute_type_named(type))
      in.fail_at(type_at, fmt::format("'{}' is not a type of an attribute", type));
  }
  in.expect("=");
  size_t value_at = in.position();
  auto require = [&](std::string_view found, std::initializer_list<std::string_view> types) {
    bool fits = type.empty();
    for (std::string_view candidate : types) fits = fits || type == candidate;
    if (!fits)
      in.fail_at(value_at, fmt::format("the attribute '{}' is {} where its type says {}", attribute.name, found, type));
  };
  if (in.take("@")) {
    attribute.value = AttributeReference{in.name("an attribute's name"), attribute_type_named(type)};
  } else if (type == "graph") {
    attribute.graph = std::make_unique<GraphSyntax>(graph());
  } else if (in.at_quoted()) {
    require("a string", {"string"});
    attribute.value = in.quoted("a string");
  } else if (in.peek() == '[') {
    require("a list", {"ints", "floats", "strings"});
    attribute.value = parse_list(in, type);
  } else if (in.at_number()) {
    require("a number", {"int", "float"});
    std::string_view literal = in.number("a number");
    bool floating = type.empty() ? is_floating_literal(literal) : type == "float";
    attribute.value = floating ? AttributeValue(number<float>(in, value_at, literal))
                               : AttributeValue(number<int64_t>(in, value_at, literal));
  } else if (DType dtype = dtype_named(in.peek_identifier()); dtype != DType::undefined) {
    require("a tensor", {"tensor"});
    attribute.value = parse_tensor(in, dtype, attribute.name);
  } else if (in.at_identifier()) {
    require("a graph", {"graph"});
    attribute.graph = std::make_unique<GraphSyntax>(graph());
  } else {
    in.expected("an attribute's value");
  }
  return attribute;
}

std::string attribute_type_name(int type) {
  for (const AttributeType& row : kAttributeTypes)
    if (row.number == type) return std::string(row.name);
  return "undefined";
}

int attribute_type_named(std::string_view name) {
  for (const AttributeType& row : kAttributeTypes)
    if (row.name == name) return row.number;
  return 0;
}

}  // namespace tessera::text

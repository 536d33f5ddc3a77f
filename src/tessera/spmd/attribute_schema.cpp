#include "tessera/spmd/attribute_schema.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::spmd {
namespace {

bool holds(const Attribute& attribute, AttributeKind kind) {
  switch (kind) {
    case AttributeKind::integer:
      return std::holds_alternative<int64_t>(attribute.value);
    case AttributeKind::integers:
      return std::holds_alternative<std::vector<int64_t>>(attribute.value);
    case AttributeKind::text:
      return std::holds_alternative<std::string>(attribute.value);
    case AttributeKind::texts:
      return std::holds_alternative<std::vector<std::string>>(attribute.value);
  }
  return false;
}

std::string_view name_of(AttributeKind kind) {
  constexpr std::string_view kNames[] = {"an integer", "a list of integers", "a string", "a list of strings"};
  return kNames[static_cast<size_t>(kind)];
}

template <typename... Args>
[[noreturn]] void wrong(const Node& node, fmt::format_string<Args...> format, Args&&... args) {
  fail("dialect", "{}: {}", node.label(), fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

void check_attributes(const Node& node, std::string_view op, std::span<const AttributeSchema> schema,
                      std::string_view order) {
  for (const Attribute& attribute : node.attributes) {
    if (!order.empty() && attribute.name == order) {
      const auto* order = std::get_if<std::string>(&attribute.value);
      if (!order || *order != "position")
        wrong(node, "its order must be \"position\"; leave it out in programs with tokens");
      continue;
    }
    auto known = std::find_if(schema.begin(), schema.end(),
                              [&](const AttributeSchema& each) { return each.name == attribute.name; });
    if (known == schema.end()) {
      std::vector<std::string_view> names;
      for (const AttributeSchema& each : schema) names.push_back(each.name);
      wrong(node, "{} has no attribute '{}'; it has {}", op, attribute.name,
            names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
    }
    if (!holds(attribute, known->kind))
      wrong(node, "its attribute {} must be {}", attribute.name, name_of(known->kind));
  }
  for (const AttributeSchema& each : schema)
    if (each.required && !node.find_attribute(each.name))
      wrong(node, "its attribute {} is missing; give it {}", each.name, name_of(each.kind));
}

}  // namespace tessera::spmd

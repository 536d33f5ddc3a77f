#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/bounds.h"
#include "tessera/train/spec.h"

/// The keys of a rule's text, "NAME:key=value,…", as members of its value. One list of them serves reading, writing and
/// checking.
namespace tessera::train {

template <typename Rule>
struct Key {
  std::string_view name;
  std::variant<double Rule::*, int Rule::*, int64_t Rule::*, bool Rule::*, std::optional<double> Rule::*,
               std::optional<int64_t> Rule::*>
      member;
  Bounds bounds = {};  ///< of a number
};

template <typename Rule>
using Keys = std::vector<Key<Rule>>;

/// Gives the rule's members what the text has. Throws a user error as Spec does.
template <typename Rule>
void read_keys(Rule& rule, const Keys<Rule>& keys, Spec& spec) {
  for (const Key<Rule>& key : keys) {
    const auto read = [&](auto& value) {
      using Value = std::remove_reference_t<decltype(value)>;
      if constexpr (std::is_same_v<Value, bool>)
        value = spec.flag(key.name, value);
      else if constexpr (std::is_floating_point_v<Value>)
        value = spec.number(key.name, value, key.bounds);
      else
        value = static_cast<Value>(spec.whole(key.name, value, key.bounds));
    };
    const auto read_optional = [&](auto& value) {
      auto number = value.value_or(0);
      read(number);  // which also makes the key known
      if (spec.has(key.name)) value = number;
    };
    std::visit(
        [&](auto member) {
          if constexpr (requires { (rule.*member).has_value(); })
            read_optional(rule.*member);
          else
            read(rule.*member);
        },
        key.member);
  }
}

/// Calls `visit` with each key and its value; an optional one only where it is given.
template <typename Rule, typename Visit>
void for_each_value(const Rule& rule, const Keys<Rule>& keys, const Visit& visit) {
  for (const Key<Rule>& key : keys)
    std::visit(
        [&](auto member) {
          if constexpr (!requires { (rule.*member).has_value(); })
            visit(key, rule.*member);
          else if ((rule.*member).has_value())
            visit(key, *(rule.*member));
        },
        key.member);
}

/// Throws a user error for the first number that is out of bounds; `name` is the rule's.
template <typename Rule>
void require_bounds(const Rule& rule, const Keys<Rule>& keys, std::string_view stage, std::string_view name) {
  for_each_value(rule, keys, [&](const Key<Rule>& key, auto value) {
    if (!key.bounds.hold(static_cast<double>(value)))
      fail(stage, "'{}={}' of {}: {} must be {}", key.name, value, name, key.name, key.bounds.text());
  });
}

/// "NAME:first,key=value,…"; `first` may be empty.
template <typename Rule>
std::string text_with(const Rule& rule, const Keys<Rule>& keys, std::string_view name, std::string first = "") {
  std::string text = std::move(first);
  for_each_value(rule, keys, [&](const Key<Rule>& key, auto value) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key.name, value);
  });
  return fmt::format("{}{}{}", name, text.empty() ? "" : ":", text);
}

}  // namespace tessera::train

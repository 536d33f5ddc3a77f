#pragma once

#include <algorithm>
#include <string_view>

namespace tessera {

/// Whether a mesh may have an axis of that name: letters, digits and '_', a letter or '_' first.
inline bool is_axis_name(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto is_plain = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && is_letter(name.front()) && std::all_of(name.begin(), name.end(), is_plain);
}

}  // namespace tessera

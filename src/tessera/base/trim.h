#pragma once

#include <string_view>

namespace tessera {

/// `text` without the spaces and tabs at its ends.
inline std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace tessera

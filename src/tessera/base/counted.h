#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace tessera {

/// "1 rank", "3 ranks"; `plural` if it is not the noun with an s.
template <std::integral N>
std::string counted(N count, std::string_view noun, std::string_view plural = "") {
  if (count == 1) return fmt::format("1 {}", noun);
  return plural.empty() ? fmt::format("{} {}s", count, noun) : fmt::format("{} {}", count, plural);
}

}  // namespace tessera

#pragma once

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/checked.h"

namespace tessera {

/// "12.5 MiB"; with `digits` behind the point.
inline std::string bytes_text(double bytes, int digits = 1) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.{}f} {}", bytes, digits, kUnits[unit]);
}

/// Two sizes that a message compares. Unequal ones have unequal texts: "3.04 GiB" and "3.02 GiB", or bytes if even
/// three digits are the same.
struct ComparedBytes {
  std::string first, second;
};
inline ComparedBytes compared_bytes(size_t first, size_t second) {
  constexpr int kMostDigits = 3;
  for (int digits = 1; digits <= kMostDigits; ++digits) {
    ComparedBytes texts{bytes_text(static_cast<double>(first), digits),
                        bytes_text(static_cast<double>(second), digits)};
    if (first == second || texts.first != texts.second) return texts;
  }
  return {fmt::format("{} B", first), fmt::format("{} B", second)};
}

/// Bytes of "512M" or "4G": K, M, G and T are powers of 1024. Nullopt for other text, and for 0.
inline std::optional<size_t> parse_bytes(std::string_view text) {
  size_t bytes = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  const std::string_view unit(end, text.data() + text.size());
  constexpr std::string_view kUnits = "KMGT";
  const size_t power = unit.size() == 1 ? kUnits.find(unit[0]) + 1 : 0;  // npos + 1 is 0
  if (error != std::errc() || bytes == 0 || (!unit.empty() && power == 0)) return std::nullopt;
  return multiply_if_fits(bytes, size_t{1} << 10 * power);
}

}  // namespace tessera

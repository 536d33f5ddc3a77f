#pragma once

#include <fmt/format.h>

#include <string>

#include "tessera/memory.h"

namespace tessera {

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

}  // namespace tessera

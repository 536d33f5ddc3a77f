#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "tessera/base/error.h"

/// Products and sums of extents and of bytes. No arithmetic on sizes may wrap around: an overflow is the user's
/// mistake, and its message names the tensor.
namespace tessera {

/// No memory holds a tensor of more bytes than this (one pebibyte). Sizes computed from the extents of a smaller
/// tensor, such as a kernel's scratch memory, are far from overflowing.
inline constexpr size_t kMostBytes = size_t{1} << 50;

template <std::integral T>
std::optional<T> multiply_if_fits(T a, T b) {
  T result;
  return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
}

template <std::integral T>
std::optional<T> add_if_fits(T a, T b) {
  T result;
  return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
}

/// a·b, or a user error about `what`, for example "'y'".
template <std::integral T>
T checked_multiply(T a, T b, std::string_view what) {
  if (auto result = multiply_if_fits(a, b)) return *result;
  fail("memory", "{}: {} times {} is more than any memory holds; give smaller sizes", what, a, b);
}

/// a + b, or a user error about `what`.
template <std::integral T>
T checked_add(T a, T b, std::string_view what) {
  if (auto result = add_if_fits(a, b)) return *result;
  fail("memory", "{}: {} and {} are more than any memory holds; give smaller sizes", what, a, b);
}

/// The product of extents, each raised to at least `least`; nullopt if it overflows.
template <typename Extents>
std::optional<int64_t> count_if_fits(const Extents& dims, int64_t least = 0) {
  int64_t count = 1;
  for (int64_t extent : dims)
    if (__builtin_mul_overflow(count, std::max(extent, least), &count)) return std::nullopt;
  return count;
}

/// The product of sizes, none of them negative, in bytes; or a user error about `what`.
inline size_t checked_bytes(std::initializer_list<int64_t> factors, std::string_view what) {
  const auto product = count_if_fits(factors);
  if (product) return static_cast<size_t>(*product);
  fail("memory", "{} would take more than any memory holds; give smaller sizes", what);
}

}  // namespace tessera

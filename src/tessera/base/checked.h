#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "tessera/base/error.h"

/// Products and sums of extents and of bytes. What does not fit is the user's mistake, and its message says which
/// tensor it is about: no arithmetic on sizes may wrap around.
namespace tessera {

/// No memory holds a tensor of more bytes than this (one pebibyte). What is computed of a smaller one's extents, as the
/// scratch memory of a kernel, is far from overflowing.
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

/// a·b, or a user error about `what`, as "'y'".
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

/// The product of extents, of which each is `least` at the least; nullopt where it overflows.
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

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/dtype.h"

namespace tessera {
inline namespace v1 {

using Dims = std::vector<int64_t>;

/// Product of extents; 1 for a scalar. A user error if it overflows.
int64_t count_of(std::span<const int64_t> dims);

/// Throws a user error that names the tensor if no memory holds it; extents of 0 count as 1. After this check,
/// arithmetic on the tensor's extents is safe.
void require_countable(DType dtype, std::span<const int64_t> dims, std::string_view name);

/// A host tensor, row-major and dense. Copying a Tensor copies no data: its bytes are shared, and immutable once others
/// hold them. `owner` keeps the bytes alive (heap memory or a mapped file).
struct Tensor {
  DType dtype = DType::undefined;
  Dims dims;
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;
  size_t bytes = 0;

  /// A zero-filled tensor on the heap.
  static Tensor zeros(DType dtype, Dims dims);
  /// A tensor on the heap with uninitialized elements, to be filled.
  static Tensor uninitialized(DType dtype, Dims dims);
  /// Copies `bytes` bytes from `source`.
  static Tensor copy_of(DType dtype, Dims dims, const void* source, size_t bytes);
  template <typename T>
  static Tensor of(DType dtype, Dims dims, const std::vector<T>& values) {
    return copy_of(dtype, std::move(dims), values.data(), values.size() * sizeof(T));
  }

  int64_t count() const { return count_of(dims); }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data), bytes / sizeof(T)};
  }
  /// For filling a tensor that zeros() or uninitialized() just made and that nobody else holds.
  std::byte* mutable_data() { return const_cast<std::byte*>(data); }

  /// Integer elements (any integer type or bool) widened to int64.
  std::vector<int64_t> to_int64() const;
};

/// Whether the data of a file are the weights of a quantized operator, a parameter as floats are: integers of 8 or 4
/// bits of two or more dimensions, and more of them than shape computation follows.
bool is_quantized_weight(const Tensor& data);

}  // namespace v1
}  // namespace tessera

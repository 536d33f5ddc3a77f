#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
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

/// The type whose elements are C++ values of T; undefined if there is none.
template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::float32;
  if constexpr (std::is_same_v<T, double>) return DType::float64;
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  if constexpr (std::is_same_v<T, int8_t>) return DType::int8;
  if constexpr (std::is_same_v<T, int16_t>) return DType::int16;
  if constexpr (std::is_same_v<T, int32_t>) return DType::int32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::int64;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::uint8;
  if constexpr (std::is_same_v<T, uint16_t>) return DType::uint16;
  if constexpr (std::is_same_v<T, uint32_t>) return DType::uint32;
  if constexpr (std::is_same_v<T, uint64_t>) return DType::uint64;
  return DType::undefined;
}

/// A host tensor, row-major and dense. Copying a Tensor copies no data: its bytes are shared, and immutable once others
/// hold them. `owner` keeps the bytes alive (heap memory or a mapped file); null: the caller does.
struct Tensor {
  DType dtype = DType::undefined;
  Dims dims;
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;
  size_t bytes = 0;
  std::byte* writable = nullptr;  ///< the same as `data` where the elements may be written; else they are read only

  /// A zero-filled tensor on the heap.
  static Tensor zeros(DType dtype, Dims dims);
  /// A tensor on the heap with uninitialized elements, to be filled.
  static Tensor uninitialized(DType dtype, Dims dims);
  /// Copies `bytes` bytes from `source`. Throws a user error if the type and dimensions need another number.
  static Tensor copy_of(DType dtype, Dims dims, const void* source, size_t bytes);
  /// The same of `values`, whose elements are as large as the type's.
  template <typename T>
  static Tensor of(DType dtype, Dims dims, const std::vector<T>& values) {
    return copy_of(dtype, std::move(dims), values.data(), values.size() * sizeof(T));
  }
  /// Copies values of one of the types of dtype_of().
  template <typename T>
  static Tensor of(Dims dims, const std::vector<T>& values) {
    static_assert(dtype_of<T>() != DType::undefined, "no tensor has elements of this type");
    return of(dtype_of<T>(), std::move(dims), values);
  }
  /// Memory of the caller, uncopied: it must stay as it is while anybody holds the tensor, which keeps `owner` alive.
  /// Throws a user error if the type and dimensions need another number of bytes.
  static Tensor borrow(DType dtype, Dims dims, const void* data, size_t bytes,
                       std::shared_ptr<const void> owner = nullptr);
  /// The same of memory that may be written: Session::run_into() writes results there.
  static Tensor borrow_mutable(DType dtype, Dims dims, void* data, size_t bytes,
                               std::shared_ptr<const void> owner = nullptr);

  int64_t count() const { return count_of(dims); }
  /// The elements. Throws a user error unless they are values of T, as dtype_of() says (uint8_t for bool, too).
  template <typename T>
  std::span<const T> elements() const {
    static_assert(dtype_of<T>() != DType::undefined, "no tensor has elements of this type");
    require_elements(dtype_of<T>());
    return as<T>();
  }
  /// The bytes as values of T, whatever the type is.
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data), bytes / sizeof(T)};
  }
  /// For filling a tensor that nobody else holds. Throws a user error for one that is read only: neither made by
  /// zeros(), uninitialized(), copy_of(), of() or a run, nor borrowed by borrow_mutable().
  std::byte* mutable_data() {
    if (!is_writable()) refuse_to_write();
    return writable;
  }
  bool is_writable() const { return bytes == 0 || (data != nullptr && writable == data); }

  /// Throws a user error that names the tensor unless it has the bytes that its type and dimensions need.
  void require_whole(std::string_view name) const;

  /// Integer elements (any integer type or bool) widened to int64.
  std::vector<int64_t> to_int64() const;

 private:
  void require_elements(DType wanted) const;
  [[noreturn]] void refuse_to_write() const;
};

/// Whether the data of a file are the weights of a quantized operator, a parameter as floats are: integers of 8 or 4
/// bits of two or more dimensions, and more of them than shape computation follows.
bool is_quantized_weight(const Tensor& data);

}  // namespace v1
}  // namespace tessera

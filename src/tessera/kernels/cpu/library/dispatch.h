#pragma once

#include <type_traits>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/float16.h"
#include "tessera/kernels/cpu/library/teams.h"
#include "tessera/kernels/kernel.h"

namespace tessera::kernels {

/// A list of element types that a kernel computes.
template <typename... T>
struct Types {};

template <typename... A, typename... B>
Types<A..., B...> operator+(Types<A...>, Types<B...>) {
  return {};
}

using FloatTypes = Types<float, BFloat16, Float16, double>;
using SignedTypes = Types<int8_t, int16_t, int32_t, int64_t>;
using UnsignedTypes = Types<uint8_t, uint16_t, uint32_t, uint64_t>;
using IntegerTypes = decltype(SignedTypes() + UnsignedTypes());
using NumberTypes = decltype(FloatTypes() + IntegerTypes());
using AllTypes = decltype(NumberTypes() + Types<bool>());

/// The DType whose elements are stored as T: tessera::dtype_of(), and the 16-bit floats.
template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, BFloat16>) return DType::bfloat16;
  if constexpr (std::is_same_v<T, Float16>) return DType::float16;
  return tessera::dtype_of<T>();
}

template <typename T>
constexpr bool is_narrow_float = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

/// The type in which elements of T are computed: float for the 16-bit floats, T itself otherwise.
template <typename T>
using Compute = std::conditional_t<is_narrow_float<T>, float, T>;

template <typename T>
Compute<T> load(T element) {
  return static_cast<Compute<T>>(element);
}
template <typename T>
T store(Compute<T> value) {
  return static_cast<T>(value);
}

/// "the kernel of Gelu 'h.0/gelu' does not compute int8 elements": a user error.
[[noreturn]] void fail_dtype(const Node& node, DType dtype);

/// Calls `visit.template operator()<T>()` with the type of the list that stores `dtype`, and returns its result:
///
///     return dispatch(FloatTypes(), context.node, dtype, [&]<typename T>() -> std::unique_ptr<Kernel> { … });
///
/// A user error naming the node if the list has no such type.
template <typename First, typename... Rest, typename Visit>
auto dispatch(Types<First, Rest...>, const Node& node, DType dtype, Visit&& visit)
    -> decltype(visit.template operator()<First>()) {
  if (dtype == dtype_of<First>()) return visit.template operator()<First>();
  if constexpr (sizeof...(Rest) > 0)
    return dispatch(Types<Rest...>(), node, dtype, std::forward<Visit>(visit));
  else
    fail_dtype(node, dtype);
}

/// For kernels that only move elements: dispatches on their size, as unsigned integers of 1, 2, 4 or 8 bytes.
template <typename Visit>
auto dispatch_size(const Node& node, DType dtype, Visit&& visit) -> decltype(visit.template operator()<uint8_t>()) {
  switch (bits_of(dtype)) {
    case 8:
      return visit.template operator()<uint8_t>();
    case 16:
      return visit.template operator()<uint16_t>();
    case 32:
      return visit.template operator()<uint32_t>();
    case 64:
      return visit.template operator()<uint64_t>();
    default:
      fail_dtype(node, dtype);
  }
}

/// A kernel that is a function object: `make_kernel([=](const KernelArgs& args) { … }, scratch_bytes)`.
template <typename Run>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(Run run, size_t scratch) : run_(std::move(run)), scratch_(scratch) {}
  size_t scratch_bytes() const override { return scratch_; }
  void run(const KernelArgs& args) override { run_(args); }

 private:
  Run run_;
  size_t scratch_;
};

template <typename Run>
std::unique_ptr<Kernel> make_kernel(Run run, size_t scratch_bytes = 0) {
  return std::make_unique<FunctionKernel<Run>>(std::move(run), scratch_bytes);
}

}  // namespace tessera::kernels

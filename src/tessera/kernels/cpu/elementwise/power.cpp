#include <cmath>

#include "tessera/base/saturated.h"
#include "tessera/kernels/cpu/elementwise/elementwise.h"

namespace tessera::kernels {
namespace {

using BaseTypes = decltype(FloatTypes() + Types<int32_t, int64_t>());

template <typename T, typename E>
T integer_power(T base, E exponent) {
  using Unsigned = std::make_unsigned_t<T>;
  if constexpr (std::is_signed_v<E>)
    if (exponent < 0) {
      if (base == 1) return 1;
      if (base == -1) return exponent % 2 == 0 ? 1 : -1;
      return 0;
    }
  Unsigned result = 1;
  for (Unsigned square = static_cast<Unsigned>(base); exponent > 0; exponent >>= 1, square *= square)
    if (exponent & 1) result *= square;
  return static_cast<T>(result);
}

/// x * x, which wraps around as integer_power does.
template <typename T>
T squared(T x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(x) * static_cast<uint64_t>(x));
  else
    return x * x;
}

/// One element. Squares, which are frequent in models, have a loop of their own for a scalar exponent; squared() gives
/// both ways the same bits.
template <typename T, typename E>
T power(T base, E exponent) {
  if constexpr (std::is_integral_v<T> && std::is_integral_v<E>) {
    return integer_power(base, exponent);
  } else {
    if (exponent == E(2)) return squared(base);
    const double result = std::pow(static_cast<double>(base), static_cast<double>(exponent));
    if constexpr (std::is_integral_v<T>)
      return saturated<T>(result);  // as a Cast
    else
      return static_cast<T>(result);
  }
}

/// Exponents come in twelve types. They are read as one that has all their values, of which a base has one to three, so
/// that there are ten loops instead of 72.
template <typename X>
using ReadExponents = void (*)(const void* exponents, int64_t begin, int64_t n, X* out);

template <typename E, typename X>
void read_exponents(const void* exponents, int64_t begin, int64_t n, X* out) {
  const E* from = static_cast<const E*>(exponents) + begin;
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<X>(load(from[i]));
}

template <typename T, typename X>
std::unique_ptr<Kernel> power_kernel(const PrepareContext& context, ReadExponents<X> read) {
  Broadcast plan(context.node, context.outputs[0].dims, {context.inputs[0].dims, context.inputs[1].dims});
  const bool scalar = context.inputs[1].count() == 1;
  return make_kernel([plan = std::move(plan), scalar, read, threads = context.threads](const KernelArgs& args) {
    const T* base = args.in<T>(0);
    const void* exponents = args.inputs[1];
    T* out = args.out<T>();
    X first{};
    if (scalar) read(exponents, 0, 1, &first);
    if (first == X(2)) {
      plan.for_each_row(threads, [&](const int64_t* offsets, int64_t begin, int64_t n) {
        const T* a = base + offsets[0];
        map_binary(a, plan.fixed(0), a, plan.fixed(0), out + begin, n, [](auto x, auto) { return squared(x); });
      });
      return;
    }
    const int64_t base_step = plan.fixed(0) ? 0 : 1, exponent_step = plan.fixed(1) ? 0 : 1;
    plan.for_each_row(threads, [&](const int64_t* offsets, int64_t begin, int64_t n) {
      constexpr int64_t kChunk = 256;
      X row[kChunk];
      for (int64_t at = 0; at < n; at += kChunk) {
        const int64_t count = std::min(kChunk, n - at);
        if (at == 0 || exponent_step == 1)
          read(exponents, offsets[1] + at * exponent_step, exponent_step == 1 ? count : 1, row);
        const T* a = base + offsets[0] + at * base_step;
        for (int64_t i = 0; i < count; ++i)
          out[begin + at + i] = store<T>(power(load(a[i * base_step]), row[i * exponent_step]));
      }
    });
  });
}

std::unique_ptr<Kernel> prepare_pow(const PrepareContext& context) {
  return dispatch(BaseTypes(), context.node, context.inputs[0].dtype, [&]<typename T>() {
    return dispatch(NumberTypes(), context.node, context.inputs[1].dtype, [&]<typename E>() {
      using Integer = std::conditional_t<std::is_signed_v<E>, int64_t, uint64_t>;
      using X = std::conditional_t<std::is_integral_v<T> && std::is_integral_v<E>, Integer, double>;
      return power_kernel<T, X>(context, read_exponents<E, X>);
    });
  });
}

}  // namespace

std::vector<KernelEntry> power_kernels() {
  return {{"Pow", "", prepare_pow, {0}}};
}

}  // namespace tessera::kernels

#include <cmath>

#include "tessera/kernels/cpu/elementwise/elementwise.h"

namespace tessera::kernels {
namespace {

// Integers wrap around instead of overflowing; a division by zero gives zero, as in numpy.
template <typename T>
using Wrapping = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Wrapping<T>(a) + Wrapping<T>(b));
  }
};
struct Sub {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Wrapping<T>(a) - Wrapping<T>(b));
  }
};
struct Mul {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)  // 16-bit operands would be promoted to int, and overflow there
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else
      return a * b;
  }
};
struct Div {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return 0;
      if constexpr (std::is_signed_v<T>)
        if (b == -1) return Sub()(T(0), a);
    }
    return a / b;
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return ((a > b) | (a != a)) ? a : b;
  }  // NaN wins
};
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return ((a < b) | (a != a)) ? a : b;
  }
};

/// The remainder with the sign of the divisor.
struct FloorMod {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      const T rest = std::fmod(a, b);
      if (rest == 0) return std::copysign(rest, b);
      return (rest < 0) != (b < 0) ? rest + b : rest;
    } else if constexpr (std::is_signed_v<T>) {
      if (b == 0 || b == -1) return 0;
      const T rest = a % b;
      return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
    } else {
      return b == 0 ? 0 : a % b;
    }
  }
};
/// The remainder with the sign of the dividend.
struct TruncatedMod {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return 0;
      if constexpr (std::is_signed_v<T>)
        if (b == -1) return 0;
      return a % b;
    } else {
      return std::fmod(a, b);
    }
  }
};

struct PRelu {
  template <typename T>
  T operator()(T x, T slope) const {
    return x < T(0) ? Mul()(x, slope) : x;
  }
};

template <typename Op>
std::unique_ptr<Kernel> prepare_binary(const PrepareContext& context) {
  return dispatch(NumberTypes(), context.node, context.inputs[0].dtype,
                  [&]<typename T>() { return binary_kernel<T, T, Op>(context); });
}

/// For operators that give integers with a sign the bits of those without: they are computed as these.
template <typename Op>
std::unique_ptr<Kernel> prepare_wrapping(const PrepareContext& context) {
  return dispatch(NumberTypes(), context.node, context.inputs[0].dtype, [&]<typename T>() {
    using Bits = Wrapping<T>;
    return binary_kernel<Bits, Bits, Op>(context);
  });
}

std::unique_ptr<Kernel> prepare_mod(const PrepareContext& context) {
  const bool truncated = context.node.get_int("fmod", 0) != 0;
  return truncated ? prepare_binary<TruncatedMod>(context) : prepare_binary<FloorMod>(context);
}

/// Combines any number of operands: out = op(op(a, b), c) … divided by `divisor`. Intermediate results of 16-bit floats
/// stay in float32, so that they are rounded once.
template <typename T, typename Op>
std::unique_ptr<Kernel> variadic_kernel(const PrepareContext& context, bool mean) {
  std::vector<Broadcast> plans;  // one each, since a joint plan for many operands would merge fewer dimensions
  for (const TensorDesc& input : context.inputs)
    plans.emplace_back(context.node, context.outputs[0].dims, std::vector<Dims>{context.outputs[0].dims, input.dims});
  return make_kernel([plans = std::move(plans), mean, count = context.outputs[0].count(),
                      threads = context.threads](const KernelArgs& args) {
    using C = Compute<T>;
    T* out = args.out<T>();
    for_ranges(count, count * static_cast<int64_t>(plans.size()), threads, [&](int64_t begin, int64_t end) {
      alignas(64) C sum[narrow_chunk], operand[narrow_chunk];
      for (int64_t at = begin; at < end; at += narrow_chunk) {
        const int64_t chunk = std::min(narrow_chunk, end - at);
        for (size_t k = 0; k < plans.size(); ++k) {
          const T* in = args.in<T>(k);
          C* target = k == 0 ? sum : operand;
          plans[k].walk(at, at + chunk, [&](const int64_t* offsets, int64_t from, int64_t n) {
            const T* source = in + offsets[1];
            C* to = target + (from - at);
            if (plans[k].fixed(1))
              std::fill(to, to + n, load(*source));
            else if constexpr (is_narrow_float<T>)
              widen_row(source, to, n);
            else
              std::copy(source, source + n, to);
          });
          if (k > 0) binary_loop(sum, false, operand, false, sum, chunk, Op());
        }
        if (mean) {
          const C divisor = static_cast<C>(plans.size());
          unary_loop(sum, sum, chunk, [divisor](C x) { return x / divisor; });
        }
        if constexpr (is_narrow_float<T>)
          narrow_row(sum, out + at, chunk);
        else
          std::copy(sum, sum + chunk, out + at);
      }
    });
  });
}

template <typename Op, bool mean = false>
std::unique_ptr<Kernel> prepare_variadic(const PrepareContext& context) {
  if (context.inputs.size() == 2 && !mean) return prepare_binary<Op>(context);
  return dispatch(NumberTypes(), context.node, context.inputs[0].dtype,
                  [&]<typename T>() { return variadic_kernel<T, Op>(context, mean); });
}

}  // namespace

std::vector<KernelEntry> arithmetic_kernels() {
  return {
      {"Add", "", prepare_wrapping<Add>, {0, 1}}, {"Sub", "", prepare_wrapping<Sub>, {0, 1}},
      {"Mul", "", prepare_wrapping<Mul>, {0, 1}}, {"Div", "", prepare_binary<Div>, {0, 1}},
      {"Mod", "", prepare_mod, {0, 1}},           {"PRelu", "", prepare_binary<PRelu>, {0}},
      {"Max", "", prepare_variadic<Max>, {0, 1}}, {"Min", "", prepare_variadic<Min>, {0, 1}},
      {"Sum", "", prepare_variadic<Add>, {0, 1}}, {"Mean", "", prepare_variadic<Add, true>, {0, 1}},
  };
}

}  // namespace tessera::kernels

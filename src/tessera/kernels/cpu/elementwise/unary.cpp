#include "tessera/kernels/cpu/elementwise/elementwise.h"
#include "tessera/kernels/cpu/elementwise/vector_math.h"

namespace tessera::kernels {
namespace {

namespace vm = vector_math;

// Integers wrap around, as in two's complement, instead of overflowing.
template <typename T>
T negated(T x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(x));
  else
    return -x;
}

struct Abs {
  template <typename T>
  T operator()(T x) const {
    if constexpr (std::is_unsigned_v<T>)
      return x;
    else if constexpr (std::is_integral_v<T>)
      return x < 0 ? negated(x) : x;
    else
      return std::fabs(x);
  }
};
struct Neg {
  template <typename T>
  T operator()(T x) const {
    return negated(x);
  }
};
struct Sign {
  template <typename T>
  T operator()(T x) const {
    const T not_positive = x < T(0) ? negated(T(1)) : x;  // zero and NaN stay
    return x > T(0) ? T(1) : not_positive;
  }
};

struct Exp {
  template <typename T>
  T operator()(T x) const {
    return vm::exp(x);
  }
};
struct Log {
  template <typename T>
  T operator()(T x) const {
    return vm::log(x);
  }
};
struct Sqrt {
  template <typename T>
  T operator()(T x) const {
    return std::sqrt(x);
  }
};
struct Reciprocal {
  template <typename T>
  T operator()(T x) const {
    return T(1) / x;
  }
};
struct Erf {
  template <typename T>
  T operator()(T x) const {
    return vm::erf(x);
  }
};
struct Tanh {
  template <typename T>
  T operator()(T x) const {
    return vm::tanh(x);
  }
};
struct Floor {
  template <typename T>
  T operator()(T x) const {
    return std::floor(x);
  }
};
struct Ceil {
  template <typename T>
  T operator()(T x) const {
    return std::ceil(x);
  }
};
struct Round {
  template <typename T>
  T operator()(T x) const {
    return std::nearbyint(x);
  }  // ties to even
};

/// An operator without a vector form uses the C library's, in double.
template <double (*function)(double)>
struct InDouble {
  template <typename T>
  T operator()(T x) const {
    return static_cast<T>(function(static_cast<double>(x)));
  }
};

template <double (*function)(double)>
std::unique_ptr<Kernel> prepare_in_double(const PrepareContext& context) {
  return prepare_float_unary<InDouble<function>>(context);
}

/// sin and cos: the vector form for moderate arguments; larger ones are computed again in double.
template <float (*vector_form)(float), double (*exact)(double)>
void trigonometric_loop(const float* in, float* out, int64_t n) {
  alignas(64) float result[narrow_chunk];
  for (int64_t at = 0; at < n; at += narrow_chunk) {
    const int64_t count = std::min(narrow_chunk, n - at);
    unary_loop(in + at, result, count, [](float x) { return vector_form(x); });
    for (int64_t i = 0; i < count; ++i)
      if (!(std::fabs(in[at + i]) < vm::trigonometric_limit)) result[i] = static_cast<float>(exact(in[at + i]));
    std::copy(result, result + count, out + at);
  }
}

template <float (*vector_form)(float), double (*exact)(double)>
std::unique_ptr<Kernel> prepare_trigonometric(const PrepareContext& context) {
  const DType dtype = context.inputs[0].dtype;
  if (dtype == DType::float64) return unary_kernel<double, double>(context, InDouble<exact>());
  constexpr auto loop = trigonometric_loop<vector_form, exact>;
  const int64_t total = context.outputs[0].count();
  return dispatch(Types<float, BFloat16, Float16>(), context.node, dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel([total, threads = context.threads](const KernelArgs& args) {
      const T* in = args.in<T>(0);
      T* out = args.out<T>();
      for_ranges(total, total, threads, [&](int64_t begin, int64_t end) {
        if constexpr (std::is_same_v<T, float>) {
          loop(in + begin, out + begin, end - begin);
        } else {
          alignas(64) float wide[narrow_chunk];
          for (int64_t at = begin; at < end; at += narrow_chunk) {
            const int64_t count = std::min(narrow_chunk, end - at);
            widen_row(in + at, wide, count);
            loop(wide, wide, count);
            narrow_row(wide, out + at, count);
          }
        }
      });
    });
  });
}

struct IsNaN {
  template <typename T>
  bool operator()(T x) const {
    return x != x;
  }
};
struct IsInf {
  explicit IsInf(const Node& node)
      : negative(node.get_int("detect_negative", 1) != 0), positive(node.get_int("detect_positive", 1) != 0) {}
  template <typename T>
  bool operator()(T x) const {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    return (positive & (x == infinity)) | (negative & (x == -infinity));
  }
  bool negative, positive;
};

std::unique_ptr<Kernel> prepare_is_nan(const PrepareContext& context) {
  return dispatch(FloatTypes(), context.node, context.inputs[0].dtype,
                  [&]<typename T>() { return unary_kernel<T, bool>(context, IsNaN()); });
}

std::unique_ptr<Kernel> prepare_is_inf(const PrepareContext& context) {
  return dispatch(FloatTypes(), context.node, context.inputs[0].dtype,
                  [&]<typename T>() { return unary_kernel<T, bool>(context, IsInf(context.node)); });
}

std::unique_ptr<Kernel> prepare_not(const PrepareContext& context) {
  return dispatch(Types<bool>(), context.node, context.inputs[0].dtype,
                  [&]<typename T>() { return unary_kernel<T, T>(context, [](T x) { return !x; }); });
}

std::unique_ptr<Kernel> prepare_bitwise_not(const PrepareContext& context) {
  return dispatch(IntegerTypes(), context.node, context.inputs[0].dtype,
                  [&]<typename T>() { return unary_kernel<T, T>(context, [](T x) { return static_cast<T>(~x); }); });
}

}  // namespace

std::vector<KernelEntry> unary_kernels() {
  return {
      {"Abs", "", prepare_number_unary<Abs>, {0}},
      {"Neg", "", prepare_number_unary<Neg>, {0}},
      {"Sign", "", prepare_number_unary<Sign>, {0}},
      {"Exp", "", prepare_float_unary<Exp>, {0}},
      {"Log", "", prepare_float_unary<Log>, {0}},
      {"Sqrt", "", prepare_float_unary<Sqrt>, {0}},
      {"Reciprocal", "", prepare_float_unary<Reciprocal>, {0}},
      {"Erf", "", prepare_float_unary<Erf>, {0}},
      {"Tanh", "", prepare_float_unary<Tanh>, {0}},
      {"Sin", "", prepare_trigonometric<vm::sin, std::sin>, {0}},
      {"Cos", "", prepare_trigonometric<vm::cos, std::cos>, {0}},
      {"Tan", "", prepare_in_double<std::tan>, {0}},
      {"Sinh", "", prepare_in_double<std::sinh>, {0}},
      {"Cosh", "", prepare_in_double<std::cosh>, {0}},
      {"Asin", "", prepare_in_double<std::asin>, {0}},
      {"Acos", "", prepare_in_double<std::acos>, {0}},
      {"Atan", "", prepare_in_double<std::atan>, {0}},
      {"Asinh", "", prepare_in_double<std::asinh>, {0}},
      {"Acosh", "", prepare_in_double<std::acosh>, {0}},
      {"Atanh", "", prepare_in_double<std::atanh>, {0}},
      {"Floor", "", prepare_float_unary<Floor>, {0}},
      {"Ceil", "", prepare_float_unary<Ceil>, {0}},
      {"Round", "", prepare_float_unary<Round>, {0}},
      {"IsNaN", "", prepare_is_nan, {}},
      {"IsInf", "", prepare_is_inf, {}},
      {"Not", "", prepare_not, {0}},
      {"BitwiseNot", "", prepare_bitwise_not, {0}},
  };
}

}  // namespace tessera::kernels

#include "tessera/kernels/cpu/elementwise/activations.h"
#include "tessera/kernels/cpu/elementwise/elementwise.h"
#include "tessera/kernels/cpu/elementwise/vector_math.h"

/// Activation functions. Comparisons are written so that NaN passes through.
namespace tessera::kernels {
namespace {

namespace vm = vector_math;

template <typename T>
T clamp(T x, T low, T high) {
  const T raised = x < low ? low : x;
  return raised > high ? high : raised;
}

struct LeakyRelu {
  explicit LeakyRelu(const Node& node) : alpha(node.get_float("alpha", 0.01f)) {}
  template <typename T>
  T operator()(T x) const {
    return x < T(0) ? T(alpha) * x : x;
  }
  float alpha;
};

struct ThresholdedRelu {
  explicit ThresholdedRelu(const Node& node) : alpha(node.get_float("alpha", 1.0f)) {}
  template <typename T>
  T operator()(T x) const {
    return x > T(alpha) ? x : T(0);  // NaN is not above it
  }
  float alpha;
};

struct Elu {
  explicit Elu(const Node& node) : alpha(node.get_float("alpha", 1.0f)) {}
  template <typename T>
  T operator()(T x) const {
    const T low = T(alpha) * vm::expm1(x);
    return x < T(0) ? low : x;
  }
  float alpha;
};

struct Selu {
  explicit Selu(const Node& node)
      : alpha(node.get_float("alpha", 1.67326319217681884765625f)),
        gamma(node.get_float("gamma", 1.05070102214813232421875f)) {}
  template <typename T>
  T operator()(T x) const {
    const T low = T(alpha) * vm::expm1(x);
    return T(gamma) * (x <= T(0) ? low : x);
  }
  float alpha, gamma;
};

struct Celu {
  explicit Celu(const Node& node) : alpha(node.get_float("alpha", 1.0f)) {}
  template <typename T>
  T operator()(T x) const {
    const T low = T(alpha) * vm::expm1(x / T(alpha));
    return x < T(0) ? low : x;
  }
  float alpha;
};

/// Zero within the threshold `lambd`; beyond it, the element moves towards zero by the bias.
struct Shrink {
  explicit Shrink(const Node& node) : bias(node.get_float("bias", 0.0f)), threshold(node.get_float("lambd", 0.5f)) {}
  template <typename T>
  T operator()(T x) const {
    const T above = x > T(threshold) ? x - T(bias) : T(0);  // NaN is neither above nor below
    return x < -T(threshold) ? x + T(bias) : above;
  }
  float bias, threshold;
};

struct Sigmoid {
  template <typename T>
  T operator()(T x) const {
    return vm::sigmoid(x);
  }
};

struct HardSigmoid {
  explicit HardSigmoid(const Node& node) : alpha(node.get_float("alpha", 0.2f)), beta(node.get_float("beta", 0.5f)) {}
  template <typename T>
  T operator()(T x) const {
    return clamp(T(alpha) * x + T(beta), T(0), T(1));
  }
  float alpha, beta;
};

struct HardSwish {
  template <typename T>
  T operator()(T x) const {
    return x * clamp(x * (T(1) / T(6)) + T(0.5), T(0), T(1));
  }
};

struct Softplus {
  template <typename T>
  T operator()(T x) const {
    const T e = vm::exp(-std::fabs(x));
    return (x < T(0) ? T(0) : x) + vm::log1p(e);
  }
};

struct Softsign {
  template <typename T>
  T operator()(T x) const {
    return x / (T(1) + std::fabs(x));
  }
};

/// x tanh(log(1 + e^x)) = x n / (n + 2) with n = e^x (e^x + 2); beyond 20 the factor is 1 to the last bit.
struct Mish {
  template <typename T>
  T operator()(T x) const {
    const T e = vm::exp(x > T(20) ? T(20) : x);
    const T n = e * (e + T(2));
    return x * (n / (n + T(2)));
  }
};

std::unique_ptr<Kernel> prepare_gelu(const PrepareContext& context) {
  const std::string approximate = context.node.get_string("approximate", "none");
  if (approximate == "none") return prepare_float_unary<GeluExact>(context);
  if (approximate == "tanh") return prepare_float_unary<GeluTanh>(context);
  fail("kernel", "{}: approximate is '{}'; it can be 'none' or 'tanh'", context.node.label(), approximate);
}

}  // namespace

std::vector<KernelEntry> activation_kernels() {
  return {
      {"Relu", "", prepare_number_unary<Relu>, {0}},
      {"LeakyRelu", "", prepare_float_unary<LeakyRelu>, {0}},
      {"ThresholdedRelu", "", prepare_float_unary<ThresholdedRelu>, {0}},
      {"Elu", "", prepare_float_unary<Elu>, {0}},
      {"Selu", "", prepare_float_unary<Selu>, {0}},
      {"Celu", "", prepare_float_unary<Celu>, {0}},
      {"Shrink", "", prepare_float_unary<Shrink>, {0}},
      {"Sigmoid", "", prepare_float_unary<Sigmoid>, {0}},
      {"Swish", "", prepare_float_unary<Swish>, {0}},
      {"HardSigmoid", "", prepare_float_unary<HardSigmoid>, {0}},
      {"HardSwish", "", prepare_float_unary<HardSwish>, {0}},
      {"Softplus", "", prepare_float_unary<Softplus>, {0}},
      {"Softsign", "", prepare_float_unary<Softsign>, {0}},
      {"Mish", "", prepare_float_unary<Mish>, {0}},
      {"Gelu", "", prepare_gelu, {0}},
  };
}

}  // namespace tessera::kernels

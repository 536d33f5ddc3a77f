#pragma once

#include "tessera/ir/graph.h"
#include "tessera/kernels/cpu/elementwise/vector_math.h"

/// Activation functions that other kernels than their own compute, too. Comparisons are written so that NaN passes
/// through.
namespace tessera::kernels {

struct Relu {
  template <typename T>
  T operator()(T x) const {
    return x < T(0) ? T(0) : x;
  }
};

struct Swish {
  explicit Swish(const Node& node) : alpha(node.get_float("alpha", 1.0f)) {}
  template <typename T>
  T operator()(T x) const {
    return x * vector_math::sigmoid(T(alpha) * x);
  }
  float alpha;
};

struct GeluExact {
  template <typename T>
  T operator()(T x) const {
    return T(0.5) * x * (T(1) + vector_math::erf(x * T(0.70710678118654752440)));
  }
};

struct GeluTanh {
  template <typename T>
  T operator()(T x) const {
    const T inner = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);  // sqrt(2/pi)
    return T(0.5) * x * (T(1) + vector_math::tanh(inner));
  }
};

}  // namespace tessera::kernels

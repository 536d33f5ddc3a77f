#include <cmath>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

struct BatchNormalization {
  int64_t batch, channels, inner;
  float epsilon;
  int threads;
};

/// y = (x - mean) · scale / sqrt(variance + epsilon) + bias per channel. T is x's type, P that of scale and bias, S
/// that of mean and variance.
template <typename T, typename P, typename S>
void normalize_batch(const BatchNormalization& norm, const KernelArgs& args) {
  const T* x = args.in<T>(0);
  const P *scale = args.in<P>(1), *bias = args.in<P>(2);
  const S *mean = args.in<S>(3), *variance = args.in<S>(4);
  using C = Compute<T>;
#pragma omp parallel for num_threads(team_for(norm.batch* norm.channels* norm.inner, norm.threads)) schedule(static)
  for (int64_t channel = 0; channel < norm.channels; ++channel) {
    const C center = static_cast<C>(load(mean[channel])), spread = static_cast<C>(load(variance[channel]));
    const C factor = static_cast<C>(load(scale[channel])) / std::sqrt(spread + static_cast<C>(norm.epsilon));
    const C offset = static_cast<C>(load(bias[channel]));
    for (int64_t b = 0; b < norm.batch; ++b) {
      const int64_t at = (b * norm.channels + channel) * norm.inner;
      for (int64_t i = at; i < at + norm.inner; ++i)
        args.out<T>()[i] = store<T>((load(x[i]) - center) * factor + offset);
    }
  }
}

std::unique_ptr<Kernel> prepare_batch_normalization(const PrepareContext& context) {
  const Node& node = context.node;
  const Dims& x = context.inputs.at(0).dims;
  if (x.empty()) fail("kernel", "{}: the input is a scalar; it needs a batch dimension", node.label());
  BatchNormalization norm{x[0], x.size() > 1 ? x[1] : 1, x.size() > 2 ? count_of(std::span(x).subspan(2)) : 1,
                          node.get_float("epsilon", 1e-5f), context.threads};
  for (size_t i = 1; i <= 4; ++i)
    if (context.inputs.at(i).count() != norm.channels)
      fail("kernel", "{}: operand {} has {} elements, but there are {} channels", node.label(), i,
           context.inputs[i].count(), norm.channels);
  return dispatch(FloatTypes(), node, context.inputs[0].dtype, [&]<typename T>() {
    return dispatch(Types<T, float>(), node, context.inputs[1].dtype, [&]<typename P>() {
      return dispatch(Types<T, float>(), node, context.inputs[3].dtype, [&]<typename S>() -> std::unique_ptr<Kernel> {
        return make_kernel([norm](const KernelArgs& args) { normalize_batch<T, P, S>(norm, args); });
      });
    });
  });
}

}  // namespace

std::vector<KernelEntry> batch_normalization_kernels() {
  return {{"BatchNormalization", "", prepare_batch_normalization, {0}}};
}

}  // namespace tessera::kernels

#include "tessera/base/checked.h"
#include "tessera/base/error.h"
#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/reduce/row_moments.h"
#include "tessera/kernels/registry.h"
#include "tessera/kernels/view.h"

namespace tessera::kernels {
namespace {

// x and y may be the same row: each element is read before it is written. The pragmas vectorise at -O2.

TESSERA_MULTIVERSION Moments<float> row_moments(const float* x, int64_t count) {
  return moments_of(x, count);
}
Moments<double> row_moments(const double* x, int64_t count) {
  return moments_of(x, count);
}

/// y = (x - mean) · factor + offset
TESSERA_MULTIVERSION void shift_and_scale(const float* x, float* y, int64_t count, float mean, float factor,
                                          float offset) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * factor + offset;
}
void shift_and_scale(const double* x, double* y, int64_t count, double mean, double factor, double offset) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * factor + offset;
}

/// GroupNormalization, and InstanceNormalization as groups of one channel: scale and bias are per channel.
template <typename T>
std::unique_ptr<Kernel> group_normalization(const PrepareContext& context, int64_t groups) {
  using C = Compute<T>;
  const Dims& x = context.inputs.at(0).dims;
  const int64_t channels = x[1], plane = count_of(std::span(x).subspan(2)), per_group = channels / groups;
  const Rows rows{x[0] * groups, per_group * plane, 1, context.threads};
  const C epsilon = static_cast<C>(context.node.get_float("epsilon", 1e-5f));
  return make_kernel(
      [=](const KernelArgs& args) {
        const T *scale = args.in<T>(1), *bias = args.in<T>(2);
        for_rows<T, T>(rows, args.in<T>(0), args.out<T>(), args.scratch, [&](const C* from, C* to, int64_t row) {
          const Moments<C> moments = row_moments(from, rows.length);
          const C inverse = C{1} / std::sqrt(moments.variance + epsilon);
          for (int64_t i = 0; i < per_group; ++i) {
            const int64_t channel = row % groups * per_group + i;
            shift_and_scale(from + i * plane, to + i * plane, plane, moments.mean, inverse * load(scale[channel]),
                            load(bias[channel]));
          }
        });
      },
      rows_scratch_bytes<T, T>(rows));
}

std::unique_ptr<Kernel> grouped(const PrepareContext& context, int64_t groups) {
  const TensorDesc& x = context.inputs.at(0);
  if (x.rank() < 2 || groups < 1 || x.dims[1] % groups != 0)
    fail("kernel", "{}: the channels, dimension 1 of the input, must divide into {} groups", context.node.label(),
         groups);
  for (size_t i : {1, 2})
    if (context.inputs.at(i).count() != x.dims[1] || context.inputs[i].dtype != x.dtype)
      fail("kernel", "{}: operand {} must have one {} element per channel", context.node.label(), i, name_of(x.dtype));
  return dispatch(FloatTypes(), context.node, x.dtype,
                  [&]<typename T>() { return group_normalization<T>(context, groups); });
}

std::unique_ptr<Kernel> prepare_group_normalization(const PrepareContext& context) {
  return grouped(context, context.node.get_int("num_groups", 0));
}

std::unique_ptr<Kernel> prepare_instance_normalization(const PrepareContext& context) {
  const TensorDesc& x = context.inputs.at(0);
  if (x.count() == 0) return make_kernel([](const KernelArgs&) {});
  return grouped(context, x.rank() < 2 ? 0 : x.dims[1]);
}

/// Offsets of the elements of some dimensions of a row-major tensor, in row-major order of these dimensions.
struct Positions {
  Dims dims, strides;  ///< merged where they stride as one; at least one

  Positions(const Dims& all, const std::vector<bool>& taken, bool want) {
    const Dims dense = dense_strides(all);
    for (size_t i = 0; i < all.size(); ++i) {
      if (taken[i] != want || all[i] == 1) continue;
      if (!dims.empty() && strides.back() == dense[i] * all[i]) {
        dims.back() *= all[i];
        strides.back() = dense[i];
      } else {
        dims.push_back(all[i]);
        strides.push_back(dense[i]);
      }
    }
    if (dims.empty()) dims = {1}, strides = {0};
  }

  int64_t count() const { return count_of(dims); }
  int64_t operator[](int64_t index) const {
    int64_t at = 0;
    for (size_t d = dims.size(); d-- > 0; index /= dims[d]) at += index % dims[d] * strides[d];
    return at;
  }
  /// Calls visit(index, position) for all of them, in order.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (int64_t line = 0, all = count(), inner = dims.back(); line < all; line += inner) {
      const int64_t first = (*this)[line];
      for (int64_t i = 0; i < inner; ++i) visit(line + i, first + i * strides.back());
    }
  }
};

/// y = (x - mean) / (deviation + 1e-9) over any set of dimensions; each row is gathered first.
template <typename T>
std::unique_ptr<Kernel> mean_variance_normalization(const PrepareContext& context, const std::vector<bool>& reduced) {
  using C = Compute<T>;
  const Dims& x = context.inputs[0].dims;
  const Positions kept(x, reduced, false), within(x, reduced, true);
  const int64_t rows = kept.count(), length = within.count();
  const int threads = context.threads;
  return make_kernel(
      [=](const KernelArgs& args) {
#pragma omp parallel for num_threads(team_for(rows* length, threads)) schedule(static)
        for (int64_t row = 0; row < rows; ++row) {
          C* buffer = static_cast<C*>(args.scratch) + omp_get_thread_num() * length;
          const T* in = args.in<T>(0) + kept[row];
          T* out = args.out<T>() + kept[row];
          within.for_each([&](int64_t i, int64_t at) { buffer[i] = load(in[at]); });
          const Moments<C> moments = row_moments(buffer, length);
          const C factor = C{1} / (std::sqrt(moments.variance) + static_cast<C>(1e-9));
          shift_and_scale(buffer, buffer, length, moments.mean, factor, C{0});
          within.for_each([&](int64_t i, int64_t at) { out[at] = store<T>(buffer[i]); });
        }
      },
      checked_bytes({sizeof(C), length, std::max(threads, 1)}, context.node.label()));
}

std::unique_ptr<Kernel> prepare_mean_variance_normalization(const PrepareContext& context) {
  const TensorDesc& x = context.inputs.at(0);
  if (x.count() == 0) return make_kernel([](const KernelArgs&) {});
  std::vector<bool> reduced(x.rank(), false);
  for (int64_t axis : context.node.get_ints("axes", {0, 2, 3})) {
    const int64_t dim = axis < 0 ? axis + x.rank() : axis;
    if (dim < 0 || dim >= x.rank())
      fail("kernel", "{}: axis {} is not one of the operand's {} dimensions", context.node.label(), axis, x.rank());
    reduced[dim] = true;
  }
  return dispatch(FloatTypes(), context.node, x.dtype,
                  [&]<typename T>() { return mean_variance_normalization<T>(context, reduced); });
}

}  // namespace

std::vector<KernelEntry> channel_normalization_kernels() {
  return {
      {"GroupNormalization", "", prepare_group_normalization, {0}},
      {"InstanceNormalization", "", prepare_instance_normalization, {0}},
      {"MeanVarianceNormalization", "", prepare_mean_variance_normalization, {0}},
  };
}

}  // namespace tessera::kernels

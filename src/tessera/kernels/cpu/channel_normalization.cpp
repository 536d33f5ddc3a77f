#include "tessera/base/error.h"
#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/families.h"
#include "tessera/kernels/cpu/row_moments.h"

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

/// Flat positions of all elements of the dimensions of `dims` that are (or are not) in `axes`, row-major.
std::vector<int64_t> positions(const Dims& dims, const std::vector<bool>& taken, bool want) {
  std::vector<int64_t> found{0};
  int64_t stride = count_of(dims);
  for (size_t i = 0; i < dims.size(); ++i) {
    stride /= dims[i];
    if (taken[i] != want) continue;
    std::vector<int64_t> next;
    next.reserve(found.size() * dims[i]);
    for (int64_t base : found)
      for (int64_t index = 0; index < dims[i]; ++index) next.push_back(base + index * stride);
    found = std::move(next);
  }
  return found;
}

/// y = (x - mean) / (deviation + 1e-9) over any set of dimensions; each row is gathered first.
template <typename T>
std::unique_ptr<Kernel> mean_variance_normalization(const PrepareContext& context, const std::vector<bool>& reduced) {
  using C = Compute<T>;
  const Dims& x = context.inputs[0].dims;
  const auto kept = positions(x, reduced, false), within = positions(x, reduced, true);
  const int64_t rows = static_cast<int64_t>(kept.size()), length = static_cast<int64_t>(within.size());
  const int threads = context.threads;
  return make_kernel(
      [=](const KernelArgs& args) {
#pragma omp parallel for num_threads(team_for(rows* length, threads)) schedule(static)
        for (int64_t row = 0; row < rows; ++row) {
          C* buffer = static_cast<C*>(args.scratch) + omp_get_thread_num() * length;
          for (int64_t i = 0; i < length; ++i) buffer[i] = load(args.in<T>(0)[kept[row] + within[i]]);
          const Moments<C> moments = row_moments(buffer, length);
          const C factor = C{1} / (std::sqrt(moments.variance) + static_cast<C>(1e-9));
          shift_and_scale(buffer, buffer, length, moments.mean, factor, C{0});
          for (int64_t i = 0; i < length; ++i) args.out<T>()[kept[row] + within[i]] = store<T>(buffer[i]);
        }
      },
      sizeof(C) * length * std::max(threads, 1));
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

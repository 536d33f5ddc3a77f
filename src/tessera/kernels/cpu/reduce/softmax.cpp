#include <cmath>

#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/elementwise/vector_math.h"
#include "tessera/kernels/cpu/reduce/rows.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

// x and y may be the same row: each element is read before it is written. The pragmas vectorise at -O2.

template <typename C>
[[gnu::always_inline]] inline void softmax_of(const C* x, C* y, int64_t count) {
  const C most = lane_max(x, count);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = vector_math::exp(x[i] - most);
  const C sum = lane_sum<C>(count, [y](int64_t i) { return y[i]; });
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] /= sum;
}
TESSERA_MULTIVERSION void softmax_row(const float* x, float* y, int64_t count) {
  softmax_of(x, y, count);
}
void softmax_row(const double* x, double* y, int64_t count) {
  softmax_of(x, y, count);
}

template <typename C>
[[gnu::always_inline]] inline void log_softmax_of(const C* x, C* y, int64_t count) {
  const C most = lane_max(x, count);
  const C log_sum = std::log(lane_sum<C>(count, [=](int64_t i) { return vector_math::exp(x[i] - most); }));
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - most) - log_sum;
}
TESSERA_MULTIVERSION void log_softmax_row(const float* x, float* y, int64_t count) {
  log_softmax_of(x, y, count);
}
void log_softmax_row(const double* x, double* y, int64_t count) {
  log_softmax_of(x, y, count);
}

/// One at the first of the largest elements; the first NaN is larger than all numbers.
template <typename C>
void hardmax_row(const C* x, C* y, int64_t count) {
  const auto less = [](C a, C b) { return a == a && (a < b || b != b); };
  const int64_t most = std::max_element(x, x + count, less) - x;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = i == most ? C{1} : C{0};
}

/// Divides by the sum of magnitudes (p = 1) or by the root of the sum of squares (p = 2); a row of zeros stays.
template <typename C>
[[gnu::always_inline]] inline void lp_normalize_of(const C* x, C* y, int64_t count, int64_t p) {
  const C norm = p == 1 ? lane_sum<C>(count, [x](int64_t i) { return std::fabs(x[i]); })
                        : std::sqrt(lane_sum<C>(count, [x](int64_t i) { return x[i] * x[i]; }));
  const C divisor = norm == 0 ? C{1} : norm;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] / divisor;
}
TESSERA_MULTIVERSION void lp_normalize_row(const float* x, float* y, int64_t count, int64_t p) {
  lp_normalize_of(x, y, count, p);
}
void lp_normalize_row(const double* x, double* y, int64_t count, int64_t p) {
  lp_normalize_of(x, y, count, p);
}

/// A kernel that calls `row(x, y, length)` along the node's axis.
template <typename Row>
std::unique_ptr<Kernel> along_axis(const PrepareContext& context, Row row) {
  const TensorDesc& x = context.inputs.at(0);
  int64_t axis = context.node.get_int("axis", -1);
  if (axis < 0) axis += x.rank();
  if (axis < 0 || axis >= x.rank())
    fail("kernel", "{}: axis {} is not one of the operand's {} dimensions", context.node.label(),
         context.node.get_int("axis", -1), x.rank());
  const std::span<const int64_t> dims = x.dims;
  const Rows rows{count_of(dims.first(axis)), dims[axis], count_of(dims.subspan(axis + 1)), context.threads};
  return dispatch(FloatTypes(), context.node, x.dtype, [&]<typename T>() {
    return make_kernel(
        [rows, row](const KernelArgs& args) {
          for_rows<T, T>(rows, args.in<T>(0), args.out<T>(), args.scratch,
                         [&](const auto* from, auto* to, int64_t) { row(from, to, rows.length); });
        },
        rows_scratch_bytes<T, T>(rows));
  });
}

std::unique_ptr<Kernel> prepare_softmax(const PrepareContext& context) {
  return along_axis(context, [](const auto* x, auto* y, int64_t count) { softmax_row(x, y, count); });
}
std::unique_ptr<Kernel> prepare_log_softmax(const PrepareContext& context) {
  return along_axis(context, [](const auto* x, auto* y, int64_t count) { log_softmax_row(x, y, count); });
}
std::unique_ptr<Kernel> prepare_hardmax(const PrepareContext& context) {
  return along_axis(context, [](const auto* x, auto* y, int64_t count) { hardmax_row(x, y, count); });
}
std::unique_ptr<Kernel> prepare_lp_normalization(const PrepareContext& context) {
  const int64_t p = context.node.get_int("p", 2);
  if (p != 1 && p != 2) fail("kernel", "{}: p is {}; only 1 and 2 are norms here", context.node.label(), p);
  return along_axis(context, [p](const auto* x, auto* y, int64_t count) { lp_normalize_row(x, y, count, p); });
}

}  // namespace

std::vector<KernelEntry> softmax_kernels() {
  return {
      {"Softmax", "", prepare_softmax, {0}},
      {"LogSoftmax", "", prepare_log_softmax, {0}},
      {"Hardmax", "", prepare_hardmax, {0}},
      {"LpNormalization", "", prepare_lp_normalization, {0}},
  };
}

}  // namespace tessera::kernels

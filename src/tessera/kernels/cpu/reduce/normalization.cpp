#include <array>

#include "tessera/base/error.h"
#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/library/extents.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/cpu/reduce/row_moments.h"
#include "tessera/kernels/registry.h"
#include "tessera/kernels/view.h"

namespace tessera::kernels {
namespace {

// x and y may be the same row: each element is read before it is written. The pragmas vectorise at -O2.

/// y = (x - mean) / deviation · scale + bias; `bias` may be null.
template <typename C>
[[gnu::always_inline]] inline Moments<C> layer_normalize_of(const C* x, C* y, int64_t count, C epsilon, const C* scale,
                                                            const C* bias, C& inverse) {
  const Moments<C> moments = moments_of(x, count);
  const C mean = moments.mean, factor = C{1} / std::sqrt(moments.variance + epsilon);
  inverse = factor;
  if (bias) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * factor * scale[i] + bias[i];
  } else {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * factor * scale[i];
  }
  return moments;
}
TESSERA_MULTIVERSION Moments<float> layer_normalize(const float* x, float* y, int64_t count, float epsilon,
                                                    const float* scale, const float* bias, float& inverse) {
  return layer_normalize_of(x, y, count, epsilon, scale, bias, inverse);
}
Moments<double> layer_normalize(const double* x, double* y, int64_t count, double epsilon, const double* scale,
                                const double* bias, double& inverse) {
  return layer_normalize_of(x, y, count, epsilon, scale, bias, inverse);
}

template <typename C>
[[gnu::always_inline]] inline void rms_normalize_of(const C* x, C* y, int64_t count, C epsilon, const C* scale) {
  const C squares = lane_sum<C>(count, [x](int64_t i) { return x[i] * x[i]; });
  const C factor = C{1} / std::sqrt(squares / static_cast<C>(count) + epsilon);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * factor * scale[i];
}
TESSERA_MULTIVERSION void rms_normalize(const float* x, float* y, int64_t count, float epsilon, const float* scale) {
  rms_normalize_of(x, y, count, epsilon, scale);
}
void rms_normalize(const double* x, double* y, int64_t count, double epsilon, const double* scale) {
  rms_normalize_of(x, y, count, epsilon, scale);
}

/// A scale or bias: elements of a type of its own, converted to the row's length and compute type in scratch memory if
/// necessary.
struct RowParameter {
  bool present = false;
  bool as_is = false;
  DType dtype = DType::undefined;
  Dims row;       ///< extents of a row; empty if as_is
  Dims strides;   ///< of the parameter along them, 0 where it is broadcast
  size_t at = 0;  ///< in scratch

  template <typename C>
  const C* fetch(const void* data, void* scratch) const {
    if (!present) return nullptr;
    if (as_is) return static_cast<const C*>(data);
    C* spread_out = scratch_at<C>(scratch, at);
    switch (dtype) {
      case DType::float32:
        return spread<float>(data, spread_out);
      case DType::float64:
        return spread<double>(data, spread_out);
      case DType::bfloat16:
        return spread<BFloat16>(data, spread_out);
      default:
        return spread<Float16>(data, spread_out);
    }
  }

 private:
  template <typename T, typename C>
  const C* spread(const void* data, C* to) const {
    const int64_t inner = row.empty() ? 1 : row.back(), step = row.empty() ? 0 : strides.back();
    for (int64_t line = 0, count = count_of(row); line * inner < count; ++line) {
      const T* from = static_cast<const T*>(data);
      int64_t rest = line;
      for (size_t d = row.size(); d-- > 1; rest /= row[d - 1]) from += rest % row[d - 1] * strides[d - 1];
      for (int64_t i = 0; i < inner; ++i) to[line * inner + i] = static_cast<C>(load(from[i * step]));
    }
    return to;
  }
};

/// Operand `index`, which must broadcast to the normalized dimensions `row` (numpy's rule; no dimension before them).
RowParameter row_parameter(const PrepareContext& context, size_t index, const Dims& row, DType compute,
                           ScratchPlan& plan) {
  RowParameter parameter;
  if (!context.has_input(index)) return parameter;
  const TensorDesc& desc = context.inputs[index];
  if (!is_float(desc.dtype) || bits_of(desc.dtype) < 16) fail_dtype(context.node, desc.dtype);
  parameter.present = true;
  parameter.dtype = desc.dtype;
  Dims dims = desc.dims;
  while (dims.size() > row.size() && dims.front() == 1) dims.erase(dims.begin());
  dims.insert(dims.begin(), row.size() - std::min(row.size(), dims.size()), 1);
  bool fits = dims.size() == row.size();
  for (size_t i = 0; fits && i < row.size(); ++i) fits = dims[i] == row[i] || dims[i] == 1;
  if (!fits)
    fail("kernel", "{}: operand {} of extents {} does not broadcast to the normalized dimensions {}",
         context.node.label(), index, text_of(desc.dims), text_of(row));
  if (dims == row && desc.dtype == compute) {
    parameter.as_is = true;
    return parameter;
  }
  parameter.row = row;
  parameter.strides = dense_strides(dims);
  for (size_t i = 0; i < row.size(); ++i)
    if (dims[i] == 1) parameter.strides[i] = 0;
  parameter.at = plan.add(bytes_of(compute, count_of(row)));
  return parameter;
}

/// The rows of a normalization from `axis` on, and their extents.
struct NormalizedRows {
  Rows rows;
  Dims extents;
};

NormalizedRows rows_from_axis(const PrepareContext& context) {
  const TensorDesc& x = context.inputs.at(0);
  int64_t axis = context.node.get_int("axis", -1);
  if (axis < 0) axis += x.rank();
  if (axis < 0 || axis >= x.rank())
    fail("kernel", "{}: axis {} is not one of the operand's {} dimensions", context.node.label(),
         context.node.get_int("axis", -1), x.rank());
  const Dims extents(x.dims.begin() + axis, x.dims.end());
  return {{count_of(std::span(x.dims).first(axis)), count_of(extents), 1, context.threads}, extents};
}

template <typename T>
std::unique_ptr<Kernel> layer_normalization(const PrepareContext& context) {
  using C = Compute<T>;
  const auto [rows, extents] = rows_from_axis(context);
  // Mean and InvStdDev are of stash_type; float64 operands are computed, and may be returned, in float64.
  std::array<DType, 2> stash_dtypes{};
  for (size_t i : {1, 2}) {
    if (!context.has_output(i)) continue;
    stash_dtypes[i - 1] = context.outputs[i].dtype;
    if (stash_dtypes[i - 1] != dtype_of<C>() && stash_dtypes[i - 1] != DType::float32)
      fail_dtype(context.node, stash_dtypes[i - 1]);
  }
  ScratchPlan plan;
  const RowParameter scale = row_parameter(context, 1, extents, dtype_of<C>(), plan);
  const RowParameter bias = row_parameter(context, 2, extents, dtype_of<C>(), plan);
  const size_t rows_at = plan.add(rows_scratch_bytes<T, T>(rows));
  const C epsilon = static_cast<C>(context.node.get_float("epsilon", 1e-5f));
  return make_kernel(
      [=, rows = rows](const KernelArgs& args) {
        const C* scales = scale.template fetch<C>(args.inputs[1], args.scratch);
        const C* biases = bias.present ? bias.template fetch<C>(args.inputs[2], args.scratch) : nullptr;
        auto stash = [&](size_t index, int64_t row, C value) {
          if (args.outputs.size() <= index || !args.outputs[index]) return;
          if (stash_dtypes[index - 1] == DType::float32)
            args.out<float>(index)[row] = static_cast<float>(value);
          else
            args.out<C>(index)[row] = value;
        };
        for_rows<T, T>(
            rows, args.in<T>(0), args.out<T>(), scratch_at(args.scratch, rows_at), [&](const C* x, C* y, int64_t row) {
              C inverse;
              const Moments<C> moments = layer_normalize(x, y, rows.length, epsilon, scales, biases, inverse);
              stash(1, row, moments.mean);
              stash(2, row, inverse);
            });
      },
      plan.bytes());
}

std::unique_ptr<Kernel> prepare_layer_normalization(const PrepareContext& context) {
  return dispatch(FloatTypes(), context.node, context.inputs.at(0).dtype,
                  [&]<typename T>() { return layer_normalization<T>(context); });
}

/// T is x's type, V that of scale and result.
template <typename T, typename V>
std::unique_ptr<Kernel> rms_normalization(const PrepareContext& context) {
  using C = Compute<T>;
  const auto [rows, extents] = rows_from_axis(context);
  ScratchPlan plan;
  const RowParameter scale = row_parameter(context, 1, extents, dtype_of<C>(), plan);
  const size_t rows_at = plan.add(rows_scratch_bytes<T, V>(rows));
  const C epsilon = static_cast<C>(context.node.get_float("epsilon", 1e-5f));
  return make_kernel(
      [=, rows = rows](const KernelArgs& args) {
        const C* scales = scale.template fetch<C>(args.inputs[1], args.scratch);
        for_rows<T, V>(rows, args.in<T>(0), args.out<V>(), scratch_at(args.scratch, rows_at),
                       [&](const C* x, C* y, int64_t) { rms_normalize(x, y, rows.length, epsilon, scales); });
      },
      plan.bytes());
}

std::unique_ptr<Kernel> prepare_rms_normalization(const PrepareContext& context) {
  return dispatch(FloatTypes(), context.node, context.inputs.at(0).dtype, [&]<typename T>() {
    return dispatch(FloatTypes(), context.node, context.outputs.at(0).dtype,
                    [&]<typename V>() { return rms_normalization<T, V>(context); });
  });
}

}  // namespace

std::vector<KernelEntry> normalization_kernels() {
  return {
      {"LayerNormalization", "", prepare_layer_normalization, {0}},
      {"RMSNormalization", "", prepare_rms_normalization, {0}},
  };
}

}  // namespace tessera::kernels

#include <cstring>

#include "tessera/kernels/cpu/axes.h"
#include "tessera/kernels/cpu/movement.h"
#include "tessera/kernels/cpu/parallel.h"
#include "tessera/kernels/cpu/require.h"

/// Operators that make elements rather than move them.
namespace tessera::kernels {
namespace {

/// start + i·delta; the result's extent gives the number of elements, so the limit is not read and rounding does not
/// matter.
std::unique_ptr<Kernel> prepare_range(const PrepareContext& context) {
  const int64_t count = context.outputs[0].count();
  require_scalar(context, 0, "the start", context.outputs[0].dtype);
  require_scalar(context, 2, "the delta", context.outputs[0].dtype);
  return dispatch(NumberTypes(), context.node, context.outputs[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel([count](const KernelArgs& args) {
      using C = Compute<T>;
      const C start = load(*args.in<T>(0)), delta = load(*args.in<T>(2));
      T* out = args.out<T>();
      for (int64_t i = 0; i < count; ++i) out[i] = store<T>(static_cast<C>(start + static_cast<C>(i) * delta));
    });
  });
}

std::unique_ptr<Kernel> prepare_constant_of_shape(const PrepareContext& context) {
  const TensorDesc& result = context.outputs[0];
  Tensor value = Tensor::zeros(result.dtype, {1});
  if (const Tensor* given = context.node.get<Tensor>("value")) value = *given;
  if (value.dtype != result.dtype || value.count() != 1)
    fail("kernel", "{}: value must be one element of {}", context.node.label(), name_of(result.dtype));
  return dispatch_size(context.node, result.dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    T element;
    std::memcpy(&element, value.data, sizeof(T));
    return make_kernel([element, count = result.count(), threads = context.threads](const KernelArgs& args) {
      T* out = args.out<T>();
      for_ranges(count, count, threads,
                 [&](int64_t begin, int64_t end) { std::fill(out + begin, out + end, element); });
    });
  });
}

std::unique_ptr<Kernel> prepare_eye_like(const PrepareContext& context) {
  const TensorDesc& result = context.outputs[0];
  if (result.rank() != 2) fail("kernel", "{}: the operand must be a matrix", context.node.label());
  const int64_t rows = result.dims[0], columns = result.dims[1];
  // Beyond the matrix all k have the same effect; bounding k keeps the sums below from overflowing.
  const int64_t k = std::clamp(context.node.get_int("k", 0), -rows - 1, columns + 1);
  return dispatch(AllTypes(), context.node, result.dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel([=](const KernelArgs& args) {
      T* out = args.out<T>();
      std::fill(out, out + rows * columns, store<T>(Compute<T>(0)));
      for (int64_t r = std::max<int64_t>(0, -k); r < rows && r + k < columns; ++r)
        out[r * columns + r + k] = store<T>(Compute<T>(1));
    });
  });
}

/// Keeps columns j >= row + k (upper) or j <= row + k (lower) and zeroes the rest; k may come from data.
std::unique_ptr<Kernel> prepare_trilu(const PrepareContext& context) {
  const TensorDesc& result = context.outputs[0];
  if (result.rank() < 2) fail("kernel", "{}: the operand must have two dimensions or more", context.node.label());
  const int64_t rows = result.dims[result.rank() - 2], columns = result.dims[result.rank() - 1];
  const bool upper = context.node.get_int("upper", 1) != 0, has_k = context.has_input(1);
  require_scalar(context, 1, "k", DType::int64);
  const int64_t lines = columns == 0 ? 0 : result.count() / columns;
  return dispatch_size(context.node, result.dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel([=, threads = context.threads](const KernelArgs& args) {
      // Beyond the matrix all k have the same effect; bounding k keeps the sums below from overflowing.
      const int64_t k = has_k ? std::clamp(*args.in<int64_t>(1), -rows - 1, columns + 1) : 0;
      const T* in = args.in<T>(0);
      T* out = args.out<T>();
      for_ranges(lines, lines * columns, threads, [&](int64_t begin, int64_t end) {
        for (int64_t line = begin; line < end; ++line) {
          const int64_t row = line % rows;
          const int64_t from = upper ? std::clamp<int64_t>(row + k, 0, columns) : 0;
          const int64_t to = upper ? columns : std::clamp<int64_t>(row + k + 1, 0, columns);
          const T* source = in + line * columns;
          T* target = out + line * columns;
          std::fill(target, target + from, T(0));
          if (to > from) std::memmove(target + from, source + from, static_cast<size_t>(to - from) * sizeof(T));
          std::fill(target + to, target + columns, T(0));
        }
      });
    });
  });
}

std::unique_ptr<Kernel> prepare_shape(const PrepareContext& context) {
  const Dims& dims = context.inputs[0].dims;
  const int64_t rank = context.inputs[0].rank();
  auto place = [rank](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t start = place(context.node.get_int("start", 0)), end = place(context.node.get_int("end", rank));
  const Dims wanted(dims.begin() + start, dims.begin() + std::max(start, end));
  if (context.outputs[0].count() != static_cast<int64_t>(wanted.size()))
    fail("kernel", "{}: {} extents are asked for, but there are {}", context.node.label(), context.outputs[0].count(),
         wanted.size());
  return make_kernel(
      [wanted](const KernelArgs& args) { std::copy(wanted.begin(), wanted.end(), args.out<int64_t>()); });
}

std::unique_ptr<Kernel> prepare_size(const PrepareContext& context) {
  return make_kernel([count = context.inputs[0].count()](const KernelArgs& args) { *args.out<int64_t>() = count; });
}

}  // namespace

std::vector<KernelEntry> making_kernels() {
  return {
      {"Range", "", prepare_range, {}},      {"ConstantOfShape", "", prepare_constant_of_shape, {}},
      {"EyeLike", "", prepare_eye_like, {}}, {"Trilu", "", prepare_trilu, {0}},
      {"Shape", "", prepare_shape, {}},      {"Size", "", prepare_size, {}},
  };
}

}  // namespace tessera::kernels

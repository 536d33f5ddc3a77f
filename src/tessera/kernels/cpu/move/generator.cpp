#include <cstring>

#include "tessera/kernels/axes.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/require.h"
#include "tessera/kernels/registry.h"

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

}  // namespace

std::vector<KernelEntry> generator_kernels() {
  return {
      {"Range", "", prepare_range, {}},
      {"ConstantOfShape", "", prepare_constant_of_shape, {}},
      {"EyeLike", "", prepare_eye_like, {}},
  };
}

}  // namespace tessera::kernels

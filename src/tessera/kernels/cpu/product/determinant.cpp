#include <algorithm>
#include <cmath>

#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/registry.h"

// Det: determinants of square matrices.
namespace tessera::kernels {
namespace {

// By elimination with the largest pivot of each column.
std::unique_ptr<Kernel> prepare_determinant(const PrepareContext& context) {
  const TensorDesc& x = context.inputs[0];
  const int64_t n = x.dims.back(), count = context.outputs[0].count();
  return dispatch(FloatTypes(), context.node, x.dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel(
        [=](const KernelArgs& args) {
          auto* a = static_cast<double*>(args.scratch);
          for (int64_t m = 0; m < count; ++m) {
            const T* in = args.in<T>(0) + m * n * n;
            for (int64_t i = 0; i < n * n; ++i) a[i] = static_cast<double>(load(in[i]));
            double product = 1;
            for (int64_t c = 0; c < n; ++c) {
              int64_t pivot = c;
              for (int64_t r = c + 1; r < n; ++r)
                if (std::abs(a[r * n + c]) > std::abs(a[pivot * n + c])) pivot = r;
              if (pivot != c) {
                std::swap_ranges(a + c * n, a + (c + 1) * n, a + pivot * n);
                product = -product;
              }
              product *= a[c * n + c];
              if (a[c * n + c] == 0) break;
              for (int64_t r = c + 1; r < n; ++r) {
                const double factor = a[r * n + c] / a[c * n + c];
                for (int64_t i = c; i < n; ++i) a[r * n + i] -= factor * a[c * n + i];
              }
            }
            args.out<T>()[m] = store<T>(static_cast<Compute<T>>(product));
          }
        },
        bytes_of(DType::float64, n * n));
  });
}

}  // namespace

std::vector<KernelEntry> determinant_kernels() {
  return {{"Det", "", prepare_determinant, {}}};
}

}  // namespace tessera::kernels

#include <algorithm>
#include <cmath>

#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/registry.h"

// Det and Inverse of square matrices, by elimination in float64 with the largest pivot of each column.
namespace tessera::kernels {
namespace {

/// Brings the first n columns of a matrix of n rows and `width` columns to the unit matrix, and the others along, if
/// `whole`; else to an upper triangle. Gives the determinant; a singular matrix has 0, and leaves no finite inverse.
double eliminate(double* a, int64_t n, int64_t width, bool whole) {
  double determinant = 1;
  for (int64_t c = 0; c < n; ++c) {
    int64_t pivot = c;
    for (int64_t r = c + 1; r < n; ++r)
      if (std::abs(a[r * width + c]) > std::abs(a[pivot * width + c])) pivot = r;
    if (pivot != c) {
      std::swap_ranges(a + c * width, a + (c + 1) * width, a + pivot * width);
      determinant = -determinant;
    }
    const double lead = a[c * width + c];
    determinant *= lead;
    if (lead == 0 && !whole) break;
    for (int64_t r = whole ? 0 : c + 1; r < n; ++r) {
      if (r == c) continue;
      const double factor = a[r * width + c] / lead;
      for (int64_t i = c; i < width; ++i) a[r * width + i] -= factor * a[c * width + i];
    }
    if (whole)
      for (int64_t i = c; i < width; ++i) a[c * width + i] /= lead;
  }
  return determinant;
}

template <bool Inverts>
std::unique_ptr<Kernel> prepare(const PrepareContext& context) {
  const TensorDesc& x = context.inputs[0];
  const int64_t n = x.dims.back(), width = Inverts ? 2 * n : n;
  const int64_t matrices = count_of(Dims(x.dims.begin(), x.dims.end() - 2));
  return dispatch(FloatTypes(), context.node, x.dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel(
        [=](const KernelArgs& args) {
          auto* a = static_cast<double*>(args.scratch);
          for (int64_t m = 0; m < matrices; ++m) {
            const T* in = args.in<T>(0) + m * n * n;
            for (int64_t r = 0; r < n; ++r)
              for (int64_t i = 0; i < width; ++i)
                a[r * width + i] = i < n ? static_cast<double>(load(in[r * n + i])) : i - n == r ? 1 : 0;
            const double determinant = eliminate(a, n, width, Inverts);
            T* out = args.out<T>();
            if constexpr (Inverts) {
              for (int64_t r = 0; r < n; ++r)
                for (int64_t i = 0; i < n; ++i)
                  out[(m * n + r) * n + i] = store<T>(static_cast<Compute<T>>(a[r * width + n + i]));
            } else {
              out[m] = store<T>(static_cast<Compute<T>>(determinant));
            }
          }
        },
        bytes_of(DType::float64, n * width));
  });
}

}  // namespace

std::vector<KernelEntry> square_matrix_kernels() {
  return {{"Det", "", prepare<false>, {}}, {"Inverse", "com.microsoft", prepare<true>, {}}};
}

}  // namespace tessera::kernels

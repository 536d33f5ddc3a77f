#include "tessera/kernels/cpu/product/row_product.h"

#include <algorithm>
#include <array>

#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/elementwise/via_float32.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/scratch.h"

// oneDNN packs a weight [k, n] in strips of up to 64 columns, one after the other; a strip is stored row by row:
//
//     float32   [n / 64][k][64]             format tag BA16a64b, k padded to 16 rows
//     bfloat16  [n / 64][k / 2][64][2]      format tag BA16a64b2a, k padded to 32 rows
//
// A thread takes whole strips, so that it streams through memory, and holds a strip's sums in registers. A column's sum
// runs along k from the first element to the last, for any position of the column and any thread.
namespace tessera::kernels {
namespace {

constexpr int64_t kVector = 16;       // columns
constexpr int64_t kAhead = 2 * 1024;  // bytes; hardware prefetching ends at a page's end, where a strip may go on

typedef float Vector __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t Bits __attribute__((vector_size(64), aligned(4), may_alias));

struct Strips {
  int64_t width = 0;  ///< columns of a strip
  int64_t depth = 0;  ///< rows of a strip, padding included
};

/// Nullopt if the weight is packed in another way.
std::optional<Strips> strips_of(const WeightLayout& weight) {
  using Tag = dnnl::memory::format_tag;
  struct Row {
    DType stored;
    Tag tag;
    int64_t width, rows;
  };
  static constexpr std::array<Row, 8> rows = {{{DType::float32, Tag::BA16a64b, 64, 16},
                                               {DType::float32, Tag::BA16a48b, 48, 16},
                                               {DType::float32, Tag::BA16a32b, 32, 16},
                                               {DType::float32, Tag::BA16a16b, 16, 16},
                                               {DType::bfloat16, Tag::BA16a64b2a, 64, 32},
                                               {DType::bfloat16, Tag::BA16a48b2a, 48, 32},
                                               {DType::bfloat16, Tag::BA16a32b2a, 32, 32},
                                               {DType::bfloat16, Tag::BA16a16b2a, 16, 32}}};
  const Dims dims = onednn::dims_of(weight.packed);
  if (dims.size() != 2) return std::nullopt;
  for (const Row& row : rows)
    if (row.stored == weight.stored && weight.packed == onednn::Md(dims, onednn::type_of(row.stored), row.tag))
      return Strips{row.width, (dims[0] + row.rows - 1) / row.rows * row.rows};
  return std::nullopt;
}

/// sums[row][column] of M rows of `a`, `a_stride` apart, by a strip of V vectors of columns.
template <int M, int V>
[[gnu::always_inline]] inline void sum_strip(const float* a, int64_t a_stride, const float* strip, int64_t k,
                                             float* sums) {
  Vector total[M][V] = {};
  for (int64_t l = 0; l < k; ++l) {
    const Vector* weights = reinterpret_cast<const Vector*>(strip + l * V * kVector);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      __builtin_prefetch(reinterpret_cast<const std::byte*>(weights + v) + kAhead);
      const Vector weight = weights[v];
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) total[i][v] += a[i * a_stride + l] * weight;
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) *reinterpret_cast<Vector*>(sums + (i * V + v) * kVector) = total[i][v];
}

template <int M, int V>
[[gnu::always_inline]] inline void sum_strip(const float* a, int64_t a_stride, const BFloat16* strip, int64_t k,
                                             float* sums) {
  Vector total[M][V] = {};
  for (int64_t l = 0; l < k; l += 2) {
    const Bits* pairs = reinterpret_cast<const Bits*>(strip + l * V * kVector);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      __builtin_prefetch(reinterpret_cast<const std::byte*>(pairs + v) + kAhead);
      const Bits pair = pairs[v];
      const Vector even = reinterpret_cast<Vector>(pair << 16), odd = reinterpret_cast<Vector>(pair & 0xffff0000u);
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) {
        total[i][v] += a[i * a_stride + l] * even;
        total[i][v] += a[i * a_stride + l + 1] * odd;  // beyond an odd k: zero by zero
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) *reinterpret_cast<Vector*>(sums + (i * V + v) * kVector) = total[i][v];
}

template <int M, typename T>
[[gnu::always_inline]] inline void sum_rows(int64_t vectors, const float* a, int64_t a_stride, const T* strip,
                                            int64_t k, float* sums) {
  if (vectors == 4) sum_strip<M, 4>(a, a_stride, strip, k, sums);
  if (vectors == 3) sum_strip<M, 3>(a, a_stride, strip, k, sums);
  if (vectors == 2) sum_strip<M, 2>(a, a_stride, strip, k, sums);
  if (vectors == 1) sum_strip<M, 1>(a, a_stride, strip, k, sums);
}

template <typename T>
[[gnu::always_inline]] inline void sum_any(int64_t rows, int64_t vectors, const float* a, int64_t a_stride,
                                           const T* strip, int64_t k, float* sums) {
  if (rows == 1) sum_rows<1>(vectors, a, a_stride, strip, k, sums);
  if (rows == 2) sum_rows<2>(vectors, a, a_stride, strip, k, sums);
  if (rows == 3) sum_rows<3>(vectors, a, a_stride, strip, k, sums);
  if (rows == 4) sum_rows<4>(vectors, a, a_stride, strip, k, sums);
}

TESSERA_MULTIVERSION void sum_any_strip(int64_t rows, int64_t vectors, const float* a, int64_t a_stride,
                                        const float* strip, int64_t k, float* sums) {
  sum_any(rows, vectors, a, a_stride, strip, k, sums);
}
TESSERA_MULTIVERSION void sum_any_narrow_strip(int64_t rows, int64_t vectors, const float* a, int64_t a_stride,
                                               const BFloat16* strip, int64_t k, float* sums) {
  sum_any(rows, vectors, a, a_stride, strip, k, sums);
}
void sum_strip_of(int64_t rows, int64_t vectors, const float* a, int64_t a_stride, const float* strip, int64_t k,
                  float* sums) {
  sum_any_strip(rows, vectors, a, a_stride, strip, k, sums);
}
void sum_strip_of(int64_t rows, int64_t vectors, const float* a, int64_t a_stride, const BFloat16* strip, int64_t k,
                  float* sums) {
  sum_any_narrow_strip(rows, vectors, a, a_stride, strip, k, sums);
}

/// R is T, or float for sums of 16-bit T; the bias is a row of R.
template <typename T, typename R>
class RowProduct : public MatrixProduct {
 public:
  RowProduct(const ProductSpec& spec, const Strips& strips)
      : rows_(spec.shape.m),
        k_(spec.shape.k),
        n_(spec.shape.n),
        a_stride_(spec.shape.a_strides[0]),
        strips_(strips),
        with_bias_(spec.bias != DType::undefined),
        threads_(spec.threads) {}

  size_t scratch_bytes() const override { return widens ? sizeof(float) * rows_ * even_k() : 0; }

  void run(const void* a, const void* b, const void* bias, void* c, void* scratch,
           std::span<const void* const>) override {
    const auto wide = rows_of(static_cast<const T*>(a), static_cast<float*>(scratch));
    const float* rows = wide.first;  // clang 16 cannot capture structured bindings in a region of OpenMP
    const int64_t stride = wide.second;
    const T* weight = static_cast<const T*>(b);
    const R* row = with_bias_ ? static_cast<const R*>(bias) : nullptr;
    R* result = static_cast<R*>(c);
    const int64_t width = strips_.width, count = (n_ + width - 1) / width;
    for_stream(count, n_ * k_, threads_, [&](int64_t strip, int64_t) {
      alignas(64) float sums[most_row_product_rows * 4 * kVector];
      sum_strip_of(rows_, width / kVector, rows, stride, weight + strip * strips_.depth * width, k_, sums);
      const int64_t first = strip * width, columns = std::min(width, n_ - first);
      for (int64_t i = 0; i < rows_; ++i)
        for (int64_t j = 0; j < columns; ++j) {
          const float sum = sums[i * width + j];
          result[i * n_ + first + j] = static_cast<R>(row ? sum + static_cast<float>(row[first + j]) : sum);
        }
    });
  }

 private:
  static constexpr bool widens = !std::is_same_v<T, float>;

  int64_t even_k() const { return (k_ + 1) / 2 * 2; }

  /// The rows of the left operand as float32, and their distance.
  std::pair<const float*, int64_t> rows_of(const T* a, float* scratch) const {
    if constexpr (!widens) {
      return {a, a_stride_};
    } else {
      for (int64_t i = 0; i < rows_; ++i) {
        widen_row(a + i * a_stride_, scratch + i * even_k(), k_);
        if (k_ < even_k()) scratch[i * even_k() + k_] = 0;
      }
      return {scratch, even_k()};
    }
  }

  int64_t rows_, k_, n_, a_stride_;
  Strips strips_;
  bool with_bias_;
  int threads_;
};

}  // namespace

bool is_row_product(const ProductSpec& spec) {
  const MatmulShape& shape = spec.shape;
  if (!shape.batch.empty() || shape.m > most_row_product_rows || shape.m == 0) return false;
  if (shape.a_strides[1] != 1 || !View{shape.c_dims(), shape.c_strides}.is_dense()) return false;
  if (spec.bias != DType::undefined && spec.bias != spec.result) return false;
  if (!spec.weight || spec.operands != spec.weight->stored) return false;
  return onednn::dims_of(spec.weight->packed) == shape.b_dims() && strips_of(*spec.weight).has_value();
}

std::unique_ptr<MatrixProduct> make_row_product(const ProductSpec& spec) {
  if (!is_row_product(spec) || !spec.then.empty()) return nullptr;
  const Strips strips = *strips_of(*spec.weight);
  if (spec.operands == DType::float32) return std::make_unique<RowProduct<float, float>>(spec, strips);
  if (spec.result == DType::float32) return std::make_unique<RowProduct<BFloat16, float>>(spec, strips);
  return std::make_unique<RowProduct<BFloat16, BFloat16>>(spec, strips);
}

}  // namespace tessera::kernels

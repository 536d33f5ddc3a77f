#include "tessera/kernels/cpu/quantized/coded_product.h"

#include <algorithm>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/library/parallel.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kMostRows = 4;               // that stay in registers
constexpr int64_t kChunk = 16;                 // bytes of codes that become floats at once
constexpr int64_t kPanelElements = 64 * 1024;  // of floats that stay in a cache
constexpr int64_t kMostPanel = 64;             // columns

typedef float ChunkFloats __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ChunkCodes __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint8_t ChunkBytes __attribute__((vector_size(16), aligned(1), may_alias));

int64_t chunks_of(const CodedMatrix& matrix) {
  return (matrix.block_bytes() + kChunk - 1) / kChunk;
}

/// Codes of a byte: one, or two.
int64_t per_byte(const CodedMatrix& matrix) {
  return 8 / matrix.bits;
}

int64_t spread_count(const CodedMatrix& matrix) {
  return matrix.blocks() * chunks_of(matrix) * kChunk * per_byte(matrix);
}

/// A row of a in the order in which chunks of codes meet it: for each chunk, the elements beside the low halves of its
/// bytes, then those beside the high halves; zeros beyond the end of a block.
void spread_row(const CodedMatrix& matrix, const float* a, float* out) {
  const int64_t halves = per_byte(matrix), chunks = chunks_of(matrix);
  for (int64_t b = 0; b < matrix.blocks(); ++b)
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      for (int64_t half = 0; half < halves; ++half)
        for (int64_t i = 0; i < kChunk; ++i) {
          const int64_t at = (chunk * kChunk + i) * halves + half;
          *out++ = at < matrix.block ? a[b * matrix.block + at] : 0.0F;
        }
}

int zero_of(const CodedMatrix& matrix, const uint8_t* zeros, int64_t block) {
  return zeros ? zeros[block] : 1 << (matrix.bits - 1);
}

/// Sums of M spread rows by one column. Codes less zero points are small integers, and exact as floats.
template <int Bits, int M>
[[gnu::always_inline]] inline void sum_column(const CodedMatrix& matrix, const float* a, int64_t a_stride,
                                              const uint8_t* codes, const float* scales, const uint8_t* zeros,
                                              float* sums) {
  const int64_t chunks = chunks_of(matrix), bytes = matrix.block_bytes();
  ChunkFloats total[M] = {};
  for (int64_t b = 0; b < matrix.blocks(); ++b, codes += bytes) {
    const int zero = zero_of(matrix, zeros, b);
    ChunkFloats part[M] = {};
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      ChunkBytes loaded = {};
      if ((chunk + 1) * kChunk <= bytes)
        loaded = *reinterpret_cast<const ChunkBytes*>(codes + chunk * kChunk);
      else
        std::memcpy(&loaded, codes + chunk * kChunk, static_cast<size_t>(bytes - chunk * kChunk));
      const ChunkCodes wide = __builtin_convertvector(loaded, ChunkCodes);
      if constexpr (Bits == 4) {
        const ChunkFloats low = __builtin_convertvector((wide & 15) - zero, ChunkFloats);
        const ChunkFloats high = __builtin_convertvector((wide >> 4) - zero, ChunkFloats);
#pragma GCC unroll 4
        for (int i = 0; i < M; ++i) {
          part[i] += reinterpret_cast<const ChunkFloats*>(a + i * a_stride)[0] * low;
          part[i] += reinterpret_cast<const ChunkFloats*>(a + i * a_stride)[1] * high;
        }
        a += 2 * kChunk;
      } else {
        const ChunkFloats code = __builtin_convertvector(wide - zero, ChunkFloats);
#pragma GCC unroll 4
        for (int i = 0; i < M; ++i) part[i] += reinterpret_cast<const ChunkFloats*>(a + i * a_stride)[0] * code;
        a += kChunk;
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) total[i] += part[i] * scales[b];
  }
  for (int i = 0; i < M; ++i) {
    float sum = 0;
    for (int lane = 0; lane < kChunk; ++lane) sum += total[i][lane];
    sums[i] = sum;
  }
}

template <int Bits>
[[gnu::always_inline]] inline void sum_column_rows(const CodedMatrix& matrix, int64_t m, const float* a,
                                                   int64_t a_stride, const uint8_t* codes, const float* scales,
                                                   const uint8_t* zeros, float* sums) {
  if (m == 1) sum_column<Bits, 1>(matrix, a, a_stride, codes, scales, zeros, sums);
  if (m == 2) sum_column<Bits, 2>(matrix, a, a_stride, codes, scales, zeros, sums);
  if (m == 3) sum_column<Bits, 3>(matrix, a, a_stride, codes, scales, zeros, sums);
  if (m == 4) sum_column<Bits, 4>(matrix, a, a_stride, codes, scales, zeros, sums);
}

TESSERA_MULTIVERSION static void sum_columns(const CodedMatrix& matrix, int64_t m, const float* a,
                                             const CodedMatrixData& b, int64_t first, int64_t last, float* c) {
  const int64_t blocks = matrix.blocks(), bytes = blocks * matrix.block_bytes(), a_stride = spread_count(matrix);
  for (int64_t j = first; j < last; ++j) {
    float sums[kMostRows];
    const uint8_t* zeros = b.zeros ? b.zeros + j * blocks : nullptr;
    if (matrix.bits == 4)
      sum_column_rows<4>(matrix, m, a, a_stride, b.codes + j * bytes, b.scales + j * blocks, zeros, sums);
    else
      sum_column_rows<8>(matrix, m, a, a_stride, b.codes + j * bytes, b.scales + j * blocks, zeros, sums);
    for (int64_t i = 0; i < m; ++i) c[i * matrix.n + j] = sums[i];
  }
}

/// Columns first … last - 1 as floats, one after the other.
TESSERA_MULTIVERSION static void unpack_columns(const CodedMatrix& matrix, const CodedMatrixData& b, int64_t first,
                                                int64_t last, float* out) {
  const int64_t blocks = matrix.blocks(), bytes = matrix.block_bytes();
  for (int64_t at = first * blocks; at < last * blocks; ++at, out += matrix.block) {
    const uint8_t* codes = b.codes + at * bytes;
    const int zero = zero_of(matrix, b.zeros, at);
    const float scale = b.scales[at];
    if (matrix.bits == 8) {
      for (int64_t l = 0; l < matrix.block; ++l) out[l] = static_cast<float>(codes[l] - zero) * scale;
      continue;
    }
    for (int64_t i = 0; i < bytes; ++i) {
      out[2 * i] = static_cast<float>((codes[i] & 15) - zero) * scale;
      out[2 * i + 1] = static_cast<float>((codes[i] >> 4) - zero) * scale;
    }
  }
}

}  // namespace

CodedProduct::CodedProduct(int64_t m, const CodedMatrix& matrix, int threads)
    : m_(m), matrix_(matrix), threads_(threads) {
  if (m == 0 || matrix.n == 0 || matrix.k == 0) return;
  if (m <= kMostRows) {
    spread_at_ = plan_.add(bytes_of(DType::float32, m * spread_count(matrix)));
    return;
  }
  panel_ = std::min(matrix.n, std::clamp(kPanelElements / matrix.k / 8 * 8, int64_t{8}, kMostPanel));
  products_.resize(static_cast<size_t>(threads));
  for (auto& products : products_) {
    size_t inner = 0;
    for (const int64_t columns : {panel_, matrix.n % panel_}) {
      if (columns == 0 || products.contains(columns)) continue;
      ProductSpec spec{.operands = DType::float32, .result = DType::float32, .threads = 1, .label = "a coded product"};
      spec.shape.m = m;
      spec.shape.n = columns;
      spec.shape.k = matrix.k;
      spec.shape.a_strides = {matrix.k, 1};
      spec.shape.b_strides = {1, matrix.k};
      spec.shape.c_strides = {matrix.n, 1};
      std::unique_ptr<MatrixProduct> product = make_product(spec);
      check(product != nullptr, "the library multiplies float32 matrices");
      inner = std::max(inner, product->scratch_bytes());
      products.emplace(columns, std::move(product));
    }
    panel_at_.push_back(plan_.add(bytes_of(DType::float32, panel_ * matrix.k)));
    inner_at_.push_back(plan_.add(inner));
  }
}

void CodedProduct::run(const float* a, const CodedMatrixData& b, float* c, void* scratch) {
  if (m_ == 0 || matrix_.n == 0 || matrix_.k == 0)
    std::fill_n(c, m_ * matrix_.n, 0.0F);
  else if (m_ <= kMostRows)
    run_rows(a, b, c, scratch_at<float>(scratch, spread_at_));
  else
    run_panels(a, b, c, scratch);
}

void CodedProduct::run_rows(const float* a, const CodedMatrixData& b, float* c, float* spread) const {
  for (int64_t i = 0; i < m_; ++i) spread_row(matrix_, a + i * matrix_.k, spread + i * spread_count(matrix_));
  for_ranges(matrix_.n, matrix_.n * matrix_.k, threads_,
             [&](int64_t first, int64_t last) { sum_columns(matrix_, m_, spread, b, first, last, c); });
}

void CodedProduct::run_panels(const float* a, const CodedMatrixData& b, float* c, void* scratch) {
  const int64_t panels = (matrix_.n + panel_ - 1) / panel_, team = std::min<int64_t>(threads_, panels);
#pragma omp parallel for num_threads(team) schedule(static, 1)
  for (int64_t t = 0; t < team; ++t) {
    auto* panel = scratch_at<float>(scratch, panel_at_[t]);
    for (int64_t first = t * panel_; first < matrix_.n; first += team * panel_) {
      const int64_t last = std::min(matrix_.n, first + panel_);
      unpack_columns(matrix_, b, first, last, panel);
      products_[t].at(last - first)->run(a, panel, nullptr, c + first, scratch_at(scratch, inner_at_[t]));
    }
  }
}

}  // namespace tessera::kernels

#include "tessera/kernels/cpu/quantized/block_strip.h"

#include <cstring>

#include "tessera/base/multiversion.h"

// A code is brought to the top of its 32 bits and shifted back with its sign: so one vector of 16 columns gives the 8
// or 4 rows that it holds one after the other. A block's sum is of codes alone; its scale and zero point come in once:
//
//     Σ a[l]·(code[l] - zero)·scale = scale·(Σ a[l]·code[l] - zero·Σ a[l])
namespace tessera::kernels {
namespace {

constexpr int64_t kCodeVector = 16;        // columns
constexpr int kCodeVectors = 4;            // of a strip
constexpr int64_t kCodesAhead = 2 * 1024;  // bytes

typedef float FloatLanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t CodeLanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef int8_t ByteLanes __attribute__((vector_size(16), aligned(1), may_alias));

// Vectors come and go by reference, since compilers for less than AVX-512 have no way to return one.

/// Code `j` of each column's group.
template <int Bits>
[[gnu::always_inline]] inline void load_codes(const CodeLanes& group, int j, FloatLanes& codes) {
  codes = __builtin_convertvector((group << (32 - Bits * (j + 1))) >> (32 - Bits), FloatLanes);
}

/// The zero points of vector `v` of a block.
[[gnu::always_inline]] inline void load_zeros(const BlockWeight& weight, const std::byte* zeros, int64_t v,
                                              FloatLanes& loaded) {
  if (weight.zeros == BlockWeight::Zeros::floats)
    loaded = reinterpret_cast<const FloatLanes*>(zeros)[v];
  else
    loaded = __builtin_convertvector(reinterpret_cast<const ByteLanes*>(zeros)[v], FloatLanes);
}

/// Vectors first … first + V - 1 of the strip.
template <int Bits, int M, int V>
[[gnu::always_inline]] inline void sum_code_vectors(const BlockWeight& weight, const float* a, int64_t a_stride,
                                                    const float* a_sums, const std::byte* strip, int64_t first,
                                                    float* sums) {
  constexpr int kGroup = 32 / Bits;
  const int64_t blocks = weight.blocks();
  FloatLanes total[M][V] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    const std::byte* block = strip + b * weight.block_bytes();
    FloatLanes part[M][V] = {};
    for (int64_t l = 0; l < weight.block; l += kGroup) {
      const CodeLanes* groups = reinterpret_cast<const CodeLanes*>(block) + l / kGroup * kCodeVectors + first;
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) __builtin_prefetch(reinterpret_cast<const std::byte*>(groups + v) + kCodesAhead);
      const float* x = a + b * weight.block + l;
#pragma GCC unroll 8
      for (int j = 0; j < kGroup; ++j)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
          FloatLanes code;
          load_codes<Bits>(groups[v], j, code);
#pragma GCC unroll 4
          for (int i = 0; i < M; ++i) part[i][v] += x[i * a_stride + j] * code;
        }
    }
    const std::byte* scales = block + weight.code_bytes();
    const std::byte* zeros = scales + BlockWeight::strip * static_cast<int64_t>(sizeof(float));
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const FloatLanes scale = reinterpret_cast<const FloatLanes*>(scales)[first + v];
      if (weight.zeros != BlockWeight::Zeros::none) {
        FloatLanes zero;
        load_zeros(weight, zeros, first + v, zero);
#pragma GCC unroll 4
        for (int i = 0; i < M; ++i) part[i][v] -= zero * a_sums[i * blocks + b];
      }
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) total[i][v] += scale * part[i][v];
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      *reinterpret_cast<FloatLanes*>(sums + i * BlockWeight::strip + (first + v) * kCodeVector) = total[i][v];
}

template <int Bits>
[[gnu::always_inline]] inline void sum_code_strip(const BlockWeight& weight, int64_t rows, const float* a,
                                                  int64_t a_stride, const float* a_sums, const std::byte* strip,
                                                  float* sums) {
  if (rows == 1) sum_code_vectors<Bits, 1, 4>(weight, a, a_stride, a_sums, strip, 0, sums);
  if (rows == 2) sum_code_vectors<Bits, 2, 4>(weight, a, a_stride, a_sums, strip, 0, sums);
  // The sums of more rows leave registers for half a strip only.
  for (int64_t first = 0; rows > 2 && first < kCodeVectors; first += 2) {
    if (rows == 3) sum_code_vectors<Bits, 3, 2>(weight, a, a_stride, a_sums, strip, first, sums);
    if (rows == 4) sum_code_vectors<Bits, 4, 2>(weight, a, a_stride, a_sums, strip, first, sums);
  }
}

template <int Bits>
[[gnu::always_inline]] inline void unpack_codes(const BlockWeight& weight, const std::byte* strip, int64_t first,
                                                int64_t count, float* out) {
  constexpr int kGroup = 32 / Bits;
  for (int64_t b = first; b < first + count; ++b) {
    const std::byte* block = strip + b * weight.block_bytes();
    const std::byte* scales = block + weight.code_bytes();
    const std::byte* zeros = scales + BlockWeight::strip * static_cast<int64_t>(sizeof(float));
    FloatLanes scale[kCodeVectors], zero[kCodeVectors] = {};
#pragma GCC unroll 4
    for (int v = 0; v < kCodeVectors; ++v) {
      scale[v] = reinterpret_cast<const FloatLanes*>(scales)[v];
      if (weight.zeros != BlockWeight::Zeros::none) load_zeros(weight, zeros, v, zero[v]);
    }
    for (int64_t l = 0; l < weight.block; l += kGroup) {
      const CodeLanes* groups = reinterpret_cast<const CodeLanes*>(block) + l / kGroup * kCodeVectors;
#pragma GCC unroll 8
      for (int j = 0; j < kGroup; ++j, out += BlockWeight::strip)
#pragma GCC unroll 4
        for (int v = 0; v < kCodeVectors; ++v) {
          FloatLanes code;
          load_codes<Bits>(groups[v], j, code);
          reinterpret_cast<FloatLanes*>(out)[v] = (code - zero[v]) * scale[v];
        }
    }
  }
}

TESSERA_MULTIVERSION void sum_strip_of_4(const BlockWeight& weight, int64_t rows, const float* a, int64_t a_stride,
                                         const float* a_sums, const std::byte* strip, float* sums) {
  sum_code_strip<4>(weight, rows, a, a_stride, a_sums, strip, sums);
}
TESSERA_MULTIVERSION void sum_strip_of_8(const BlockWeight& weight, int64_t rows, const float* a, int64_t a_stride,
                                         const float* a_sums, const std::byte* strip, float* sums) {
  sum_code_strip<8>(weight, rows, a, a_stride, a_sums, strip, sums);
}
TESSERA_MULTIVERSION void unpack_strip_of_4(const BlockWeight& weight, const std::byte* strip, int64_t first,
                                            int64_t count, float* out) {
  unpack_codes<4>(weight, strip, first, count, out);
}
TESSERA_MULTIVERSION void unpack_strip_of_8(const BlockWeight& weight, const std::byte* strip, int64_t first,
                                            int64_t count, float* out) {
  unpack_codes<8>(weight, strip, first, count, out);
}

}  // namespace

void sum_block_strip(const BlockWeight& weight, int64_t rows, const float* a, int64_t a_stride, const float* a_sums,
                     const std::byte* strip, float* sums) {
  (weight.bits == 4 ? sum_strip_of_4 : sum_strip_of_8)(weight, rows, a, a_stride, a_sums, strip, sums);
}

void unpack_block_strip(const BlockWeight& weight, const std::byte* strip, int64_t first, int64_t count, float* out) {
  (weight.bits == 4 ? unpack_strip_of_4 : unpack_strip_of_8)(weight, strip, first, count, out);
}

}  // namespace tessera::kernels

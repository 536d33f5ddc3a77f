#include "tessera/kernels/cpu/integer_strip.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tessera/base/multiversion.h"

// A strip holds groups of four rows, one after the other: [k / 4][64 columns][4 rows]. One vector of 64 bytes is 16
// columns, and a lane of 32 bits in it one column, as the sums are.
//
// Instructions for dot products multiply and add such lanes at once. Others would have to add pairs of products in 16
// bits, where 255·127 + 255·127 saturates; so without them, each product is formed in 16 bits (255·-128 fits), and
// widened before it is added.
namespace tessera::kernels {
namespace {

constexpr int kSumVectors = 4;             // of a strip
constexpr int64_t kBytesAhead = 2 * 1024;  // bytes

int32_t group_of(const uint8_t* a) {
  int32_t group;
  std::memcpy(&group, a, sizeof group);
  return group;
}

typedef int32_t SumLanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef int16_t HalfLanes __attribute__((vector_size(64), aligned(2), may_alias));

template <int M>
[[gnu::always_inline]] inline void sum_plain(const uint8_t* a, int64_t a_stride, const int8_t* strip, int64_t k,
                                             int32_t* sums) {
  SumLanes total[M][kSumVectors] = {};
  for (int64_t l = 0; l < k; l += 4)
#pragma GCC unroll 4
    for (int v = 0; v < kSumVectors; ++v) {
      const HalfLanes bytes = *reinterpret_cast<const HalfLanes*>(strip + (l * kSumVectors + v * 4) * 16);
      const HalfLanes even = (bytes << 8) >> 8, odd = bytes >> 8;
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) {
        const uint8_t* x = a + i * a_stride + l;
        const SumLanes evens = SumLanes{} + (x[0] | x[2] << 16), odds = SumLanes{} + (x[1] | x[3] << 16);
        const auto first = reinterpret_cast<SumLanes>(even * reinterpret_cast<HalfLanes>(evens));
        const auto second = reinterpret_cast<SumLanes>(odd * reinterpret_cast<HalfLanes>(odds));
        total[i][v] += ((first << 16) >> 16) + (first >> 16) + ((second << 16) >> 16) + (second >> 16);
      }
    }
  std::memcpy(sums, total, sizeof total);
}

TESSERA_MULTIVERSION void sum_plain_strip(int64_t rows, const uint8_t* a, int64_t a_stride, const int8_t* strip,
                                          int64_t k, int32_t* sums) {
  if (rows == 1) sum_plain<1>(a, a_stride, strip, k, sums);
  if (rows == 2) sum_plain<2>(a, a_stride, strip, k, sums);
  if (rows == 3) sum_plain<3>(a, a_stride, strip, k, sums);
  if (rows == 4) sum_plain<4>(a, a_stride, strip, k, sums);
}

#if defined(__x86_64__)
template <int M>
[[gnu::target("avx512f,avx512bw,avx512vnni")]] void sum_dots(const uint8_t* a, int64_t a_stride, const int8_t* strip,
                                                             int64_t k, int32_t* sums) {
  __m512i total[M][kSumVectors];
  for (int i = 0; i < M; ++i)
    for (int v = 0; v < kSumVectors; ++v) total[i][v] = _mm512_setzero_si512();
  for (int64_t l = 0; l < k; l += 4) {
    __m512i weights[kSumVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kSumVectors; ++v) {
      const int8_t* at = strip + (l * kSumVectors + v * 4) * 16;
      __builtin_prefetch(at + kBytesAhead);
      weights[v] = _mm512_loadu_si512(at);
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      const __m512i group = _mm512_set1_epi32(group_of(a + i * a_stride + l));
#pragma GCC unroll 4
      for (int v = 0; v < kSumVectors; ++v) total[i][v] = _mm512_dpbusd_epi32(total[i][v], group, weights[v]);
    }
  }
  for (int i = 0; i < M; ++i)
    for (int v = 0; v < kSumVectors; ++v) _mm512_storeu_si512(sums + (i * kSumVectors + v) * 16, total[i][v]);
}

void sum_dots_strip(int64_t rows, const uint8_t* a, int64_t a_stride, const int8_t* strip, int64_t k, int32_t* sums) {
  if (rows == 1) sum_dots<1>(a, a_stride, strip, k, sums);
  if (rows == 2) sum_dots<2>(a, a_stride, strip, k, sums);
  if (rows == 3) sum_dots<3>(a, a_stride, strip, k, sums);
  if (rows == 4) sum_dots<4>(a, a_stride, strip, k, sums);
}

// Gives the sums to finish(row, vector of the strip, sums).
template <int M, typename Finish>
[[gnu::target("avx512f,avx512bw,avx512vnni"), gnu::always_inline]] inline void sum_pieces(const IntegerPieces& a,
                                                                                          const int8_t* strip,
                                                                                          const Finish& finish) {
  __m512i total[M][kSumVectors];
  for (int i = 0; i < M; ++i)
    for (int v = 0; v < kSumVectors; ++v) total[i][v] = _mm512_setzero_si512();
  for (int64_t p = 0; p < a.count; ++p) {
    const uint8_t* rows[M];
    for (int i = 0; i < M; ++i) rows[i] = a.at[p * a.step + i];
    for (int64_t l = 0; l < a.bytes; l += 4, strip += kSumVectors * 64) {
      __m512i weights[kSumVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kSumVectors; ++v) weights[v] = _mm512_loadu_si512(strip + v * 64);
#pragma GCC unroll 6
      for (int i = 0; i < M; ++i) {
        const __m512i group = _mm512_set1_epi32(group_of(rows[i] + l));
#pragma GCC unroll 4
        for (int v = 0; v < kSumVectors; ++v) total[i][v] = _mm512_dpbusd_epi32(total[i][v], group, weights[v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kSumVectors; ++v)
#pragma GCC unroll 6
    for (int i = 0; i < M; ++i) finish(i, v, total[i][v]);
}

struct StoredSums {
  int32_t* sums;

  [[gnu::target("avx512f"), gnu::always_inline]] void operator()(int row, int v, __m512i sum) const {
    _mm512_storeu_si512(sums + (row * kSumVectors + v) * 16, sum);
  }
};

// Masked forms, since GCC 12 warns that the others read values that are not set.
struct StoredCodes {
  const CodesOfSums& codes;
  static constexpr __mmask16 kAll = 0xFFFF;

  [[gnu::target("avx512f"), gnu::always_inline]] void operator()(int row, int v, __m512i sum) const {
    const __m512i corrected = _mm512_add_epi32(sum, _mm512_loadu_si512(codes.addend + v * 16));
    const __m512 scaled =
        _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(kAll, corrected), _mm512_loadu_ps(codes.factor + v * 16));
    const __m512 ratio =
        _mm512_div_ps(_mm512_add_ps(scaled, _mm512_loadu_ps(codes.bias + v * 16)), _mm512_set1_ps(codes.scale));
    const __m512 above = _mm512_maskz_max_ps(kAll, ratio, _mm512_set1_ps(codes.least));
    const __m512 cut = _mm512_maskz_min_ps(kAll, above, _mm512_set1_ps(codes.most));
    const __m512i rounded = _mm512_maskz_cvt_roundps_epi32(kAll, cut, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512i code =
        _mm512_maskz_add_epi32(_mm512_cmp_ps_mask(ratio, ratio, _CMP_ORD_Q), rounded, _mm512_set1_epi32(codes.zero));
    _mm512_mask_cvtepi32_storeu_epi8(codes.out + row * codes.stride + v * 16, kAll, code);
  }
};

template <typename Finish>
[[gnu::target("avx512f,avx512bw,avx512vnni"), gnu::always_inline]] inline void sum_rows(int64_t rows,
                                                                                        const IntegerPieces& a,
                                                                                        const int8_t* strip,
                                                                                        const Finish& finish) {
  if (rows == 1) sum_pieces<1>(a, strip, finish);
  if (rows == 2) sum_pieces<2>(a, strip, finish);
  if (rows == 3) sum_pieces<3>(a, strip, finish);
  if (rows == 4) sum_pieces<4>(a, strip, finish);
  if (rows == 5) sum_pieces<5>(a, strip, finish);
  if (rows == 6) sum_pieces<6>(a, strip, finish);
}

[[gnu::target("avx512f,avx512bw,avx512vnni")]] void sums_of_tile(int64_t rows, const IntegerPieces& a,
                                                                 const int8_t* strip, int32_t* sums) {
  sum_rows(rows, a, strip, StoredSums{sums});
}

[[gnu::target("avx512f,avx512bw,avx512vnni")]] void codes_of_tile(int64_t rows, const IntegerPieces& a,
                                                                  const int8_t* strip, const CodesOfSums& codes) {
  sum_rows(rows, a, strip, StoredCodes{codes});
}
#endif

bool has_vector_dots() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

}  // namespace

const IntegerTile* integer_tile() {
#if defined(__x86_64__)
  static constexpr IntegerTile kTile{sums_of_tile, codes_of_tile};
  if (has_vector_dots() && !__builtin_cpu_supports("amx-int8")) return &kTile;
#endif
  return nullptr;
}

IntegerStrip integer_strip() {
#if defined(__x86_64__)
  if (has_vector_dots()) return sum_dots_strip;
#endif
  return sum_plain_strip;
}

IntegerStrip plain_integer_strip() {
  return sum_plain_strip;
}

}  // namespace tessera::kernels

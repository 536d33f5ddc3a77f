#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include "tessera/kernels/cpu/quantized/integer_strip.h"

/// What becomes of the sums of a row of a strip, in registers.
namespace tessera::kernels {

constexpr int kSumVectors = 4;  ///< of a strip

struct StoredSums {
  int32_t* sums;
  int64_t stride;

  [[gnu::target("avx512f"), gnu::always_inline]] void operator()(int row, const __m512i (&sum)[kSumVectors]) const {
#pragma GCC unroll 4
    for (int v = 0; v < kSumVectors; ++v) _mm512_storeu_si512(sums + row * stride + v * 16, sum[v]);
  }
};

// Masked forms below, since GCC 12 warns that the others read values that are not set.
constexpr __mmask16 kAll = 0xFFFF;

/// Ratios to a scale, cut and rounded.
struct Rounding {
  float scale, least, most;
  float inverse = 1 / scale;

  // x / scale is the same number as by a division, which takes longer (P. Markstein, Computation of elementary
  // functions on the IBM RISC System/6000 processor, 1990): what the first quotient leaves of x is exact, but for an x
  // so small that its code is that of zero in any case.
  [[gnu::target("avx512f"), gnu::always_inline]] __m512i round(__m512 x) const {
    const __m512 by = _mm512_set1_ps(inverse), first = _mm512_mul_ps(x, by);
    const __m512 ratio = _mm512_fmadd_ps(_mm512_fnmadd_ps(first, _mm512_set1_ps(scale), x), by, first);
    const __m512 above = _mm512_maskz_max_ps(kAll, ratio, _mm512_set1_ps(least));
    const __m512 cut = _mm512_maskz_min_ps(kAll, above, _mm512_set1_ps(most));
    return _mm512_maskz_cvt_roundps_epi32(kAll, cut, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

struct StoredCodes {
  const CodesOfSums& codes;
  const Rounding rounding{codes.scale, codes.least, codes.most};
  // Packing makes bytes without sign of signed words: so codes with a sign are moved up by 128 first.
  const int32_t lift = codes.has_sign ? 128 : 0;

  /// Codes less their zero point.
  [[gnu::target("avx512f"), gnu::always_inline]] __m512i round(int v, __m512i sum) const {
    const __m512i corrected = _mm512_add_epi32(sum, _mm512_loadu_si512(codes.addend + v * 16));
    const __m512 scaled =
        _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(kAll, corrected), _mm512_loadu_ps(codes.factor + v * 16));
    return rounding.round(_mm512_add_ps(scaled, _mm512_loadu_ps(codes.bias + v * 16)));
  }

  [[gnu::target("avx512f,avx512bw"), gnu::always_inline]] void store(int row,
                                                                     const __m512i (&lifted)[kSumVectors]) const {
    // Each packing puts 16 bytes of one operand beside 16 of the other.
    const __m512i words[2] = {_mm512_packs_epi32(lifted[0], lifted[1]), _mm512_packs_epi32(lifted[2], lifted[3])};
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i bytes = _mm512_maskz_permutexvar_epi32(kAll, order, _mm512_packus_epi16(words[0], words[1]));
    _mm512_storeu_si512(codes.out + row * codes.stride,
                        _mm512_xor_si512(bytes, _mm512_set1_epi8(static_cast<char>(lift))));
  }

  [[gnu::target("avx512f,avx512bw"), gnu::always_inline]] void operator()(int row,
                                                                          const __m512i (&sum)[kSumVectors]) const {
    __m512i lifted[kSumVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kSumVectors; ++v)
      lifted[v] = _mm512_add_epi32(round(v, sum[v]), _mm512_set1_epi32(codes.zero + lift));
    store(row, lifted);
  }
};

struct StoredSumsOfCodes {
  const StoredCodes of;
  const CodesAdded& added = *of.codes.added;
  const CodeSum::Numbers& numbers = added.numbers;
  const Rounding rounding{numbers.scale, numbers.least, numbers.most};

  [[gnu::target("avx512f"), gnu::always_inline]] __m512 others(const std::byte* codes) const {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    const __m512i whole =
        of.lift != 0 ? _mm512_maskz_cvtepi8_epi32(kAll, bytes) : _mm512_maskz_cvtepu8_epi32(kAll, bytes);
    return _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(kAll, _mm512_sub_epi32(whole, _mm512_set1_epi32(numbers.b_zero))),
                         _mm512_set1_ps(numbers.b_scale));
  }

  [[gnu::target("avx512f,avx512bw"), gnu::always_inline]] void operator()(int row,
                                                                          const __m512i (&sum)[kSumVectors]) const {
    __m512i lifted[kSumVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kSumVectors; ++v) {
      const __m512i own = _mm512_add_epi32(of.round(v, sum[v]), _mm512_set1_epi32(of.codes.zero - numbers.a_zero));
      const __m512 floats = _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(kAll, own), _mm512_set1_ps(numbers.a_scale));
      const __m512 all = _mm512_add_ps(floats, others(added.codes + row * added.stride + v * 16));
      lifted[v] = _mm512_add_epi32(rounding.round(all), _mm512_set1_epi32(numbers.zero + of.lift));
    }
    of.store(row, lifted);
  }
};

}  // namespace tessera::kernels
#endif

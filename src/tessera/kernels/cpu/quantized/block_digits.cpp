#include "tessera/kernels/cpu/quantized/block_digits.h"

#include <algorithm>
#include <array>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera::kernels {
namespace {

constexpr int64_t kDigitBytes = 4;  // of an element

int64_t digit_heads_bytes(const BlockWeight& weight) {
  return (weight.blocks() * static_cast<int64_t>(sizeof(DigitHead)) + 63) / 64 * 64;
}

#if defined(__x86_64__)
constexpr int kDigits = 3;
constexpr int64_t kMostDigitBlock = 65536;         // rows, so that their sums fit 32 bits: 65536 · 128 · 255 < 2^31
constexpr int64_t kCodesAheadOfDigits = 8 * 1024;  // bytes

struct Order {
  alignas(64) std::array<uint8_t, 64> bytes;   // within 16 bytes each, four elements [d₀, d₁, d₂, 0]
  alignas(64) std::array<uint16_t, 32> words;  // then among all
};

// Four elements' digits become rows [d₀ × 4] [d₁ × 4] [d₂ × 4]; of 4 bits, the even elements' before the odd ones', and
// those of eight elements side by side.
constexpr Order digit_order(int bits) {
  Order order{};
  for (int i = 0; i < 64; ++i) {
    const int digit = i % 16 / 4, at = i % 4;
    const int element = bits == 8 ? at : at / 2 + at % 2 * 2;
    order.bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(element * 4 + digit);
  }
  for (int i = 0; i < 32; ++i) order.words[static_cast<size_t>(i)] = static_cast<uint16_t>(i);
  if (bits == 8) return order;
  for (int i = 0; i < 64; ++i) {
    const int digit = i % 16 / 4, parity = i % 4 / 2, half = i % 2;
    order.bytes[static_cast<size_t>(i)] = static_cast<uint8_t>((half * 2 + parity) * 4 + digit);
  }
  for (int group = 0; group < 2; ++group)
    for (int word = 0; word < 8; ++word)
      for (int half = 0; half < 2; ++half)
        order.words[static_cast<size_t>(group * 16 + word * 2 + half)] =
            static_cast<uint16_t>((group * 2 + half) * 8 + word);
  return order;
}
constexpr Order kOrderOf4 = digit_order(4), kOrderOf8 = digit_order(8);

/// The elements of a block from `at` on, at most 16, zeros behind them.
[[gnu::target("avx512f,avx512bw,avx512vnni")]] inline __m512 load_elements(const float* block, int64_t at,
                                                                           int64_t size) {
  const int64_t count = std::min<int64_t>(size - at, 16);
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1), block + at);
}

[[gnu::target("avx512f,avx512bw,avx512vnni")]] bool split_row(const BlockWeight& weight, const float* row,
                                                              std::byte* digits) {
  const Order& order = weight.bits == 4 ? kOrderOf4 : kOrderOf8;
  const __m512i bytes = _mm512_load_si512(order.bytes.data()), words = _mm512_load_si512(order.words.data());
  auto* head = reinterpret_cast<DigitHead*>(digits);
  std::byte* out = digits + digit_heads_bytes(weight);
  for (int64_t b = 0; b < weight.blocks(); ++b, ++head) {
    const float* block = row + b * weight.block;
    __m512i most = _mm512_setzero_si512();
    for (int64_t l = 0; l < weight.block; l += 16)
      most = _mm512_max_epi32(most, _mm512_and_si512(_mm512_castps_si512(load_elements(block, l, weight.block)),
                                                     _mm512_set1_epi32(0x7fffffff)));
    const int32_t largest = _mm512_reduce_max_epi32(most);
    if (largest >= 0x7f800000) return false;  // infinite, or NaN
    // |x| < 2^(exponent + 1); the unit's exponent is at least float32's smallest.
    const int exponent = std::max((largest >> 23) - 127 - 21, -126);
    const __m512 inverse = _mm512_castsi512_ps(_mm512_set1_epi32((127 - exponent) << 23));
    const __m512 shift = _mm512_set1_ps(0x1.8p23F);
    __m512i sums[kDigits] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    for (int64_t l = 0; l < weight.block; l += 16, out += 16 * kDigitBytes) {
      const __m512 scaled = _mm512_mul_ps(load_elements(block, l, weight.block), inverse);
      // Rounded by adding a number whose last bit is one.
      __m512i rest = _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(scaled, shift)), _mm512_castps_si512(shift));
      __m512i all = _mm512_setzero_si512();
#pragma GCC unroll 3
      for (int d = 0; d < kDigits; ++d) {
        const __m512i digit = _mm512_srai_epi32(_mm512_slli_epi32(rest, 24), 24);
        rest = _mm512_srai_epi32(_mm512_sub_epi32(rest, digit), 8);
        sums[d] = _mm512_add_epi32(sums[d], digit);
        all = _mm512_or_si512(
            all, _mm512_slli_epi32(_mm512_and_si512(digit, _mm512_set1_epi32(255)), static_cast<unsigned>(8 * d)));
      }
      const __m512i ordered = _mm512_permutexvar_epi16(words, _mm512_shuffle_epi8(all, bytes));
      const int64_t count = std::min<int64_t>(weight.block - l, 16);
      _mm512_mask_storeu_epi32(out, static_cast<__mmask16>((1U << count) - 1), ordered);
      if (count < 16) out -= (16 - count) * kDigitBytes;
    }
    head->unit = _mm512_cvtss_f32(_mm512_castsi512_ps(_mm512_set1_epi32((127 + exponent) << 23)));
    for (int d = 0; d < kDigits; ++d) head->sums[d] = _mm512_reduce_add_epi32(sums[d]);
  }
  return true;
}

[[gnu::target("avx512f,avx512bw,avx512vnni")]] inline __m512i digits_at(const std::byte* at) {
  int32_t four;
  __builtin_memcpy(&four, at, sizeof four);
  return _mm512_set1_epi32(four);
}

/// Adds to the sums of V vectors of columns what a group of rows gives: 8 of 4 bits, 4 of 8 bits. A code and half of
/// the codes' range is a number without sign, as these instructions want it.
template <int Bits, int M, int V>
[[gnu::target("avx512f,avx512bw,avx512vnni"), gnu::always_inline]] inline void add_group(
    const std::byte* codes, const std::byte* digits, int64_t digit_stride, __m512i (&sums)[M][V][kDigits]) {
  __m512i low[V], high[V];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    __builtin_prefetch(codes + v * 64 + kCodesAheadOfDigits);
    const __m512i group = _mm512_loadu_si512(codes + v * 64);
    if constexpr (Bits == 4) {
      const __m512i halves = _mm512_set1_epi32(0x08080808), mask = _mm512_set1_epi32(0x0f0f0f0f);
      low[v] = _mm512_ternarylogic_epi32(group, halves, mask, 0x28);  // (group ^ halves) & mask
      high[v] = _mm512_ternarylogic_epi32(_mm512_srli_epi32(group, 4), halves, mask, 0x28);
    } else {
      low[v] = _mm512_xor_si512(group, _mm512_set1_epi32(static_cast<int32_t>(0x80808080)));
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 3
    for (int d = 0; d < kDigits; ++d) {
      const std::byte* at = digits + i * digit_stride + d * (Bits == 4 ? 8 : 4);
      const __m512i first = digits_at(at);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[i][v][d] = _mm512_dpbusd_epi32(sums[i][v][d], low[v], first);
      if constexpr (Bits == 4) {
        const __m512i second = digits_at(at + 4);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sums[i][v][d] = _mm512_dpbusd_epi32(sums[i][v][d], high[v], second);
      }
    }
}

[[gnu::target("avx512f,avx512bw,avx512vnni")]] inline __m512 zeros_at(const BlockWeight& weight, const std::byte* zeros,
                                                                      int64_t v) {
  if (weight.zeros == BlockWeight::Zeros::floats) return _mm512_loadu_ps(zeros + v * 64);
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(zeros + v * 16))));
}

/// Vectors first … first + V - 1 of the strip.
template <int Bits, int M, int V>
[[gnu::target("avx512f,avx512bw,avx512vnni"), gnu::always_inline]] inline void sum_vectors(const BlockWeight& weight,
                                                                                           const std::byte* digits,
                                                                                           const std::byte* strip,
                                                                                           int64_t first, float* sums) {
  constexpr int64_t kGroup = 32 / Bits;
  const int64_t stride = digit_row_bytes(weight);
  const std::byte* row = digits + digit_heads_bytes(weight);
  __m512 total[M][V];
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) total[i][v] = _mm512_setzero_ps();
  for (int64_t b = 0; b < weight.blocks(); ++b) {
    const std::byte* codes = strip + b * weight.block_bytes() + first * 64;
    const DigitHead* heads[M];
    __m512i parts[M][V][kDigits];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      heads[i] = reinterpret_cast<const DigitHead*>(digits + i * stride) + b;
#pragma GCC unroll 3
      for (int d = 0; d < kDigits; ++d) {
        const __m512i start = _mm512_set1_epi32(-(1 << (Bits - 1)) * heads[i]->sums[d]);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) parts[i][v][d] = start;
      }
    }
    for (int64_t l = 0; l < weight.block; l += kGroup, codes += 4 * 64, row += kGroup * kDigitBytes)
      add_group<Bits, M, V>(codes, row, stride, parts);
    const std::byte* scales = strip + b * weight.block_bytes() + weight.code_bytes();
    const std::byte* zeros = scales + BlockWeight::strip * static_cast<int64_t>(sizeof(float));
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      const float unit = heads[i]->unit;
      const __m512 units[kDigits] = {_mm512_set1_ps(unit), _mm512_set1_ps(unit * 256), _mm512_set1_ps(unit * 65536)};
      float row_sum = 0;
      for (int d = kDigits - 1; d >= 0; --d)
        row_sum += static_cast<float>(heads[i]->sums[d]) * _mm512_cvtss_f32(units[d]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        __m512 part = _mm512_mul_ps(_mm512_cvtepi32_ps(parts[i][v][2]), units[2]);
        part = _mm512_fmadd_ps(_mm512_cvtepi32_ps(parts[i][v][1]), units[1], part);
        part = _mm512_fmadd_ps(_mm512_cvtepi32_ps(parts[i][v][0]), units[0], part);
        if (weight.zeros != BlockWeight::Zeros::none)
          part = _mm512_fnmadd_ps(zeros_at(weight, zeros, first + v), _mm512_set1_ps(row_sum), part);
        total[i][v] = _mm512_fmadd_ps(_mm512_loadu_ps(scales + (first + v) * 64), part, total[i][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) _mm512_storeu_ps(sums + i * BlockWeight::strip + (first + v) * 16, total[i][v]);
}

template <int Bits>
[[gnu::target("avx512f,avx512bw,avx512vnni")]] void sum_strip_by_digits(const BlockWeight& weight, int64_t rows,
                                                                        const std::byte* digits, const std::byte* strip,
                                                                        float* sums) {
  if (rows == 1) sum_vectors<Bits, 1, 4>(weight, digits, strip, 0, sums);
  // The sums of more rows leave registers for a part of the strip only.
  for (int64_t first = 0; rows > 1 && rows < 4 && first < 4; first += 2) {
    if (rows == 2) sum_vectors<Bits, 2, 2>(weight, digits, strip, first, sums);
    if (rows == 3) sum_vectors<Bits, 3, 2>(weight, digits, strip, first, sums);
  }
  for (int64_t first = 0; rows == 4 && first < 4; ++first) sum_vectors<Bits, 4, 1>(weight, digits, strip, first, sums);
}
#endif

}  // namespace

int64_t digit_row_bytes(const BlockWeight& weight) {
  return (digit_heads_bytes(weight) + weight.blocks() * weight.block * kDigitBytes + 63) / 64 * 64;
}

DigitProduct digit_product(const BlockWeight& weight) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni") && weight.block < kMostDigitBlock)
    return {split_row, weight.bits == 4 ? sum_strip_by_digits<4> : sum_strip_by_digits<8>};
#endif
  return {};
}

}  // namespace tessera::kernels

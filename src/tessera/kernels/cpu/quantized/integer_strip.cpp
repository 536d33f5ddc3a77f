#include "tessera/kernels/cpu/quantized/integer_strip.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/quantized/integer_codes.h"
#include "tessera/kernels/cpu/quantized/integer_matrix.h"

// One vector of 64 bytes is 16 columns, and a lane of 32 bits in it one column, as the sums are.
//
// Instructions for dot products multiply and add such lanes at once (VNNI). Older ones for bytes add pairs of products
// in 16 bits, where 255·127 + 255·127 saturates; so without VNNI, what saturates is made up for, or bytes become words
// first. In plain loops, each product is formed in 16 bits (255·-128 fits), and widened before it is added.
namespace tessera::kernels {
namespace {

constexpr int64_t kRowsInRegisters = 6;
constexpr int64_t kBytesAhead = 2 * 1024;  // bytes

int32_t group_of(const uint8_t* a) {
  int32_t group;
  std::memcpy(&group, a, sizeof group);
  return group;
}

typedef int32_t SumLanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef int16_t HalfLanes __attribute__((vector_size(64), aligned(2), may_alias));

template <int M>
[[gnu::always_inline]] inline void sum_plain(const uint8_t* a, int64_t a_stride, const int8_t* codes, int64_t k,
                                             int32_t* sums) {
  SumLanes total[M][kSumVectors] = {};
  for (int64_t l = 0; l < k; l += 4)
#pragma GCC unroll 4
    for (int v = 0; v < kSumVectors; ++v) {
      const HalfLanes bytes = *reinterpret_cast<const HalfLanes*>(codes + (l * kSumVectors + v * 4) * 16);
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

TESSERA_MULTIVERSION void sum_plain_strip(int64_t rows, const uint8_t* a, int64_t a_stride, const IntegerStrip& strip,
                                          int64_t k, int32_t* sums) {
  if (rows == 1) sum_plain<1>(a, a_stride, strip.codes, k, sums);
  if (rows == 2) sum_plain<2>(a, a_stride, strip.codes, k, sums);
  if (rows == 3) sum_plain<3>(a, a_stride, strip.codes, k, sums);
  if (rows == 4) sum_plain<4>(a, a_stride, strip.codes, k, sums);
}

#if defined(__x86_64__)
// Bytes that are multiplied in their stored order.
[[gnu::target("avx512f"), gnu::always_inline]] inline __m512i weights_of(__m512i vector) {
  return vector;
}
[[gnu::target("avx512f"), gnu::always_inline]] inline __m512i group_of_lanes(__m512i lanes) {
  return lanes;
}

namespace vnni {

#define TESSERA_DOTS_TARGET "avx512f,avx512bw,avx512vnni"
using Weights = __m512i;
using Group = __m512i;
constexpr int kRowsAtOnce = 6;
constexpr bool kHasWide = false;

[[gnu::target(TESSERA_DOTS_TARGET), gnu::always_inline]] inline __m512i dot(__m512i total, Group group,
                                                                            Weights weights) {
  return _mm512_dpbusd_epi32(total, group, weights);
}

#include "tessera/kernels/cpu/quantized/integer_dots.inc"
#undef TESSERA_DOTS_TARGET

}  // namespace vnni

// Bytes become words, whose products are added in pairs in 32 bits: half as many at once.
namespace words {

#define TESSERA_DOTS_TARGET "avx512f,avx512bw"
struct Weights {
  __m512i even, odd;
};
using Group = Weights;
constexpr int kRowsAtOnce = 4;
constexpr bool kHasWide = false;

[[gnu::target(TESSERA_DOTS_TARGET), gnu::always_inline]] inline Weights weights_of(__m512i vector) {
  return {_mm512_srai_epi16(_mm512_slli_epi16(vector, 8), 8), _mm512_srai_epi16(vector, 8)};
}
[[gnu::target(TESSERA_DOTS_TARGET), gnu::always_inline]] inline Group group_of_lanes(__m512i lanes) {
  return {_mm512_and_si512(lanes, _mm512_set1_epi16(0xFF)), _mm512_srli_epi16(lanes, 8)};
}
[[gnu::target(TESSERA_DOTS_TARGET), gnu::always_inline]] inline __m512i dot(__m512i total, const Group& group,
                                                                            const Weights& weights) {
  return _mm512_add_epi32(_mm512_add_epi32(total, _mm512_madd_epi16(group.even, weights.even)),
                          _mm512_madd_epi16(group.odd, weights.odd));
}

#include "tessera/kernels/cpu/quantized/integer_dots.inc"
#undef TESSERA_DOTS_TARGET

}  // namespace words

// Products of bytes are added in pairs in 16 bits; what saturates in wide vectors is made up for at last.
namespace pairs {

#define TESSERA_DOTS_TARGET "avx512f,avx512bw"
using Weights = __m512i;
using Group = __m512i;
constexpr int kRowsAtOnce = 6;
constexpr bool kHasWide = true;

[[gnu::target(TESSERA_DOTS_TARGET), gnu::always_inline]] inline __m512i dot(__m512i total, Group group,
                                                                            Weights weights) {
  const __m512i sums = _mm512_madd_epi16(_mm512_maddubs_epi16(group, weights), _mm512_set1_epi16(1));
  return _mm512_add_epi32(total, sums);
}
[[gnu::target(TESSERA_DOTS_TARGET), gnu::always_inline]] inline __m512i add_error(__m512i total, __m512i lanes,
                                                                                  __m512i vector) {
  const __m512i right = words::dot(total, words::group_of_lanes(lanes), words::weights_of(vector));
  return _mm512_sub_epi32(right, dot(_mm512_setzero_si512(), lanes, vector));
}

#include "tessera/kernels/cpu/quantized/integer_dots.inc"
#undef TESSERA_DOTS_TARGET

}  // namespace pairs

// Pairs where wide vectors are few, as in most weights; else words.
namespace bytes {

void sum_strip(int64_t rows, const uint8_t* a, int64_t a_stride, const IntegerStrip& strip, int64_t k, int32_t* sums) {
  (strip.wide[0] < 0 ? words::sum_strip : pairs::sum_strip)(rows, a, a_stride, strip, k, sums);
}
void sums_of_tile(int64_t rows, const IntegerPieces& a, const IntegerStrip& strip, int32_t* sums, int64_t stride) {
  (strip.wide[0] < 0 ? words::sums_of_tile : pairs::sums_of_tile)(rows, a, strip, sums, stride);
}
void codes_of_tile(int64_t rows, const IntegerPieces& a, const IntegerStrip& strip, const CodesOfSums& codes) {
  (strip.wide[0] < 0 ? words::codes_of_tile : pairs::codes_of_tile)(rows, a, strip, codes);
}

}  // namespace bytes

// The same of vectors of 32 bytes, two of which are one of the strip's. Sums of several rows fit in the registers for
// half a strip only.
namespace halves {

constexpr int kVectors = 2 * kSumVectors;
struct Words {
  __m256i even, odd;
};

[[gnu::target("avx2"), gnu::always_inline]] inline Words words_of_weights(__m256i vector) {
  return {_mm256_srai_epi16(_mm256_slli_epi16(vector, 8), 8), _mm256_srai_epi16(vector, 8)};
}
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i dot_of_words(__m256i lanes, const Words& weights) {
  const __m256i even = _mm256_and_si256(lanes, _mm256_set1_epi16(0xFF)), odd = _mm256_srli_epi16(lanes, 8);
  return _mm256_add_epi32(_mm256_madd_epi16(even, weights.even), _mm256_madd_epi16(odd, weights.odd));
}
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i dot_of_pairs(__m256i lanes, __m256i weights) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(lanes, weights), _mm256_set1_epi16(1));
}
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i lanes_at(const uint8_t* a) {
  return _mm256_set1_epi32(group_of(a));
}
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i weights_at(const int8_t* codes) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
}
/// Vector v of a group.
inline const int8_t* codes_of(const IntegerStrip& strip, int64_t group, int v) {
  return strip.codes + (group * kVectors + v) * 32;
}

// What pairs miss of wide vectors.
template <int M, int V>
[[gnu::target("avx2"), gnu::always_inline]] inline void add_errors(__m256i (&total)[M][V], const uint8_t* a,
                                                                   int64_t a_stride, const IntegerStrip& strip,
                                                                   int first) {
  const int32_t* list = strip.wide + kSumVectors;
  for (int v = 0; v < first / 2; ++v) list += strip.wide[v];
#pragma GCC unroll 4
  for (int v = 0; v < V / 2; ++v)
    for (const int32_t* end = list + strip.wide[first / 2 + v]; list < end; ++list)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m256i weights = weights_at(codes_of(strip, *list, first + 2 * v + half));
        const Words words = words_of_weights(weights);
#pragma GCC unroll 3
        for (int i = 0; i < M; ++i) {
          const __m256i lanes = lanes_at(a + i * a_stride + int64_t{*list} * 4);
          const __m256i missed = _mm256_sub_epi32(dot_of_words(lanes, words), dot_of_pairs(lanes, weights));
          total[i][2 * v + half] = _mm256_add_epi32(total[i][2 * v + half], missed);
        }
      }
}

// Sums of M rows and V vectors, the first of which is `first`.
template <int M, int V, bool kPairs>
[[gnu::target("avx2")]] void sum_part(const uint8_t* a, int64_t a_stride, const IntegerStrip& strip, int64_t k,
                                      int first, int32_t* sums) {
  __m256i total[M][V];
#pragma GCC unroll 3
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) total[i][v] = _mm256_setzero_si256();
  const int8_t* codes = codes_of(strip, 0, first);
  for (int64_t l = 0; l < k; l += 4, codes += kVectors * 32) {
    __m256i lanes[M];
#pragma GCC unroll 3
    for (int i = 0; i < M; ++i) lanes[i] = lanes_at(a + i * a_stride + l);
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const __m256i weights = weights_at(codes + v * 32);
#pragma GCC unroll 3
      for (int i = 0; i < M; ++i) {
        const __m256i dots =
            kPairs ? dot_of_pairs(lanes[i], weights) : dot_of_words(lanes[i], words_of_weights(weights));
        total[i][v] = _mm256_add_epi32(total[i][v], dots);
      }
    }
  }
  if constexpr (kPairs) add_errors<M, V>(total, a, a_stride, strip, first);
#pragma GCC unroll 3
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + (i * kVectors + first + v) * 8), total[i][v]);
}

template <bool kPairs>
void sum_rows(int64_t rows, const uint8_t* a, int64_t a_stride, const IntegerStrip& strip, int64_t k, int32_t* sums) {
  constexpr int kHalf = kVectors / 2;
  if (rows == 1) return sum_part<1, kVectors, kPairs>(a, a_stride, strip, k, 0, sums);
  for (int first = 0; first < kVectors; first += kHalf) {
    if (rows == 3) {
      sum_part<3, kHalf, kPairs>(a, a_stride, strip, k, first, sums);
      continue;
    }
    for (int64_t i = 0; i < rows; i += 2)
      sum_part<2, kHalf, kPairs>(a + i * a_stride, a_stride, strip, k, first, sums + i * kSumVectors * 16);
  }
}

void sum_strip(int64_t rows, const uint8_t* a, int64_t a_stride, const IntegerStrip& strip, int64_t k, int32_t* sums) {
  (strip.wide[0] < 0 ? sum_rows<false> : sum_rows<true>)(rows, a, a_stride, strip, k, sums);
}

}  // namespace halves
#endif

enum class Dots { plain, halves, bytes, vnni };

Dots dots_of_machine() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512bw")) return __builtin_cpu_supports("avx512vnni") ? Dots::vnni : Dots::bytes;
  if (__builtin_cpu_supports("avx2")) return Dots::halves;
#endif
  return Dots::plain;
}

}  // namespace

void list_wide(const int8_t* codes, int64_t groups, int64_t most, int32_t* wide) {
  std::fill_n(wide, kSumVectors, 0);
  int64_t count = 0;
  for (int v = 0; v < kSumVectors; ++v)
    for (int64_t group = 0; group < groups; ++group) {
      const int8_t* vector = codes + (group * kSumVectors + v) * 64;
      bool any = false;
      for (int pair = 0; pair < 32; ++pair) {
        const int first = vector[pair * 2], second = vector[pair * 2 + 1];
        const int above = std::max(first, 0) + std::max(second, 0), below = std::min(first, 0) + std::min(second, 0);
        any |= above > 128 || below < -128;  // times 255
      }
      if (!any) continue;
      if (count == most) {
        wide[0] = -1;
        return;
      }
      wide[kSumVectors + count++] = static_cast<int32_t>(group);
      ++wide[v];
    }
}

bool are_moderate(const CodeSum::Numbers& numbers) {
  return numbers.scale > 1 / most_factor && numbers.scale < most_factor && std::abs(numbers.a_scale) < most_factor &&
         std::abs(numbers.b_scale) < most_factor;
}

std::vector<const IntegerTile*> integer_tiles() {
  std::vector<const IntegerTile*> tiles;
#if defined(__x86_64__)
  static constexpr IntegerTile kDots{kRowsInRegisters, true, vnni::sums_of_tile, vnni::codes_of_tile};
  static constexpr IntegerTile kBytes{kRowsInRegisters, true, bytes::sums_of_tile, bytes::codes_of_tile};
  const Dots dots = dots_of_machine();
  if (const IntegerTile* matrix = integer_matrix_tile()) tiles.push_back(matrix);
  if (dots >= Dots::vnni) tiles.push_back(&kDots);
  if (dots >= Dots::bytes) tiles.push_back(&kBytes);
#endif
  return tiles;
}

const IntegerTile* integer_tile(bool in_pieces) {
  static const std::vector<const IntegerTile*> all = integer_tiles();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const IntegerTile* tile) { return tile->in_pieces || !in_pieces; });
  return found == all.end() ? nullptr : *found;
}

std::vector<IntegerStripSum> integer_strip_sums() {
  std::vector<IntegerStripSum> sums;
#if defined(__x86_64__)
  const Dots dots = dots_of_machine();
  if (dots >= Dots::vnni) sums.push_back(vnni::sum_strip);
  if (dots >= Dots::bytes) sums.push_back(bytes::sum_strip);
  if (dots >= Dots::halves) sums.push_back(halves::sum_strip);
#endif
  sums.push_back(sum_plain_strip);
  return sums;
}

}  // namespace tessera::kernels

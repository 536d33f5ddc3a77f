// No include guard: integer_strip.cpp includes this once for each way to form dot products, since functions of other
// instructions are not inlined into each other. It defines, in a namespace of their own,
//
//   TESSERA_DOTS_TARGET      the instructions
//   Weights, Group           a vector of weights, and four elements of a row in each lane, ready to be multiplied
//   weights_of(vector), group_of_lanes(lanes)
//   dot(total, group, weights)
//   kRowsAtOnce              whose sums of a strip stay in registers beside these

template <int M>
[[gnu::target(TESSERA_DOTS_TARGET)]] void sum_dots(const uint8_t* a, int64_t a_stride, const int8_t* strip, int64_t k,
                                                   int32_t* sums) {
  __m512i total[M][kSumVectors];
#pragma GCC unroll 6
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kSumVectors; ++v) total[i][v] = _mm512_setzero_si512();
  for (int64_t l = 0; l < k; l += 4) {
    Weights weights[kSumVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kSumVectors; ++v) {
      const int8_t* at = strip + (l * kSumVectors + v * 4) * 16;
      __builtin_prefetch(at + kBytesAhead);
      weights[v] = weights_of(_mm512_loadu_si512(at));
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      const Group group = group_of_lanes(_mm512_set1_epi32(group_of(a + i * a_stride + l)));
#pragma GCC unroll 4
      for (int v = 0; v < kSumVectors; ++v) total[i][v] = dot(total[i][v], group, weights[v]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kSumVectors; ++v) _mm512_storeu_si512(sums + (i * kSumVectors + v) * 16, total[i][v]);
}

inline void sum_strip(int64_t rows, const uint8_t* a, int64_t a_stride, const int8_t* strip, int64_t k, int32_t* sums) {
  if (rows == 1) sum_dots<1>(a, a_stride, strip, k, sums);
  if (rows == 2) sum_dots<2>(a, a_stride, strip, k, sums);
  if (rows == 3) sum_dots<3>(a, a_stride, strip, k, sums);
  if (rows == 4) sum_dots<4>(a, a_stride, strip, k, sums);
}

// Gives the sums of rows [first, first + M) to finish(row, sums of the strip's vectors).
template <int M, typename Finish>
[[gnu::target(TESSERA_DOTS_TARGET), gnu::always_inline]] inline void sum_pieces(int first, const IntegerPieces& a,
                                                                                const int8_t* strip,
                                                                                const Finish& finish) {
  __m512i total[M][kSumVectors];
#pragma GCC unroll 6
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kSumVectors; ++v) total[i][v] = _mm512_setzero_si512();
  for (int64_t p = 0; p < a.count; ++p) {
    const uint8_t* rows[M];
#pragma GCC unroll 6
    for (int i = 0; i < M; ++i) rows[i] = a.at[p * a.step + first + i];
    for (int64_t l = 0; l < a.bytes; l += 4, strip += kSumVectors * 64) {
      Weights weights[kSumVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kSumVectors; ++v) weights[v] = weights_of(_mm512_loadu_si512(strip + v * 64));
#pragma GCC unroll 6
      for (int i = 0; i < M; ++i) {
        const Group group = group_of_lanes(_mm512_set1_epi32(group_of(rows[i] + l)));
#pragma GCC unroll 4
        for (int v = 0; v < kSumVectors; ++v) total[i][v] = dot(total[i][v], group, weights[v]);
      }
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < M; ++i) finish(first + i, total[i]);
}

template <typename Finish>
[[gnu::target(TESSERA_DOTS_TARGET), gnu::always_inline]] inline void sum_rows(int64_t rows, const IntegerPieces& a,
                                                                              const int8_t* strip,
                                                                              const Finish& finish) {
  if (rows > kRowsAtOnce) {
    static_assert(kRowsAtOnce == 6 || kRowsAtOnce == 4);
    sum_pieces<3>(0, a, strip, finish);
    if (rows == 5) sum_pieces<2>(3, a, strip, finish);
    if (rows == 6) sum_pieces<3>(3, a, strip, finish);
    return;
  }
  if (rows == 1) sum_pieces<1>(0, a, strip, finish);
  if (rows == 2) sum_pieces<2>(0, a, strip, finish);
  if (rows == 3) sum_pieces<3>(0, a, strip, finish);
  if (rows == 4) sum_pieces<4>(0, a, strip, finish);
  if constexpr (kRowsAtOnce == 6) {
    if (rows == 5) sum_pieces<5>(0, a, strip, finish);
    if (rows == 6) sum_pieces<6>(0, a, strip, finish);
  }
}

[[gnu::target(TESSERA_DOTS_TARGET)]] inline void sums_of_tile(int64_t rows, const IntegerPieces& a, const int8_t* strip,
                                                              int32_t* sums) {
  sum_rows(rows, a, strip, StoredSums{sums});
}

[[gnu::target(TESSERA_DOTS_TARGET)]] inline void codes_of_tile(int64_t rows, const IntegerPieces& a,
                                                               const int8_t* strip, const CodesOfSums& codes) {
  if (codes.added)
    sum_rows(rows, a, strip, StoredSumsOfCodes{{codes}});
  else
    sum_rows(rows, a, strip, StoredCodes{codes});
}

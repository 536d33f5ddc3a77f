// No include guard: integer_strip.cpp includes this once for each way to form dot products, since functions of other
// instructions are not inlined into each other. It defines, in a namespace of their own,
//
//   TESSERA_DOTS_TARGET      the instructions
//   Weights, Group           a vector of weights, and four elements of a row in each lane, ready to be multiplied
//   weights_of(vector), group_of_lanes(lanes)
//   dot(total, group, weights)
//   kHasWide                 whether dot() errs for wide vectors, and add_error(total, lanes, vector) makes up for that
//   kRowsAtOnce              whose sums of a strip stay in registers beside these

// What dot() misses of the wide ones among vectors v of all groups, which are listed from `group` on; where the list
// ends. `at(i, l)` says where row i has its element l.
template <int M, int v, typename At>
[[gnu::target(TESSERA_DOTS_TARGET), gnu::always_inline]] inline const int32_t* add_errors(
    __m512i (&total)[M][kSumVectors], const IntegerStrip& strip, const int32_t* group, const At& at) {
  if constexpr (kHasWide)
    for (const int32_t* end = group + strip.wide[v]; group < end; ++group) {
      const __m512i vector = _mm512_loadu_si512(strip.codes + (int64_t{*group} * kSumVectors + v) * 64);
#pragma GCC unroll 6
      for (int i = 0; i < M; ++i)
        total[i][v] = add_error(total[i][v], _mm512_set1_epi32(group_of(at(i, int64_t{*group} * 4))), vector);
    }
  return group;
}

// The same of all vectors, one by one, so that sums are never looked up by number and stay in registers.
template <int M, typename At>
[[gnu::target(TESSERA_DOTS_TARGET), gnu::always_inline]] inline void add_all_errors(__m512i (&total)[M][kSumVectors],
                                                                                    const IntegerStrip& strip,
                                                                                    const At& at) {
  static_assert(kSumVectors == 4);
  const int32_t* group = strip.wide + kSumVectors;
  group = add_errors<M, 0>(total, strip, group, at);
  group = add_errors<M, 1>(total, strip, group, at);
  group = add_errors<M, 2>(total, strip, group, at);
  add_errors<M, 3>(total, strip, group, at);
}

template <int M>
[[gnu::target(TESSERA_DOTS_TARGET)]] void sum_dots(const uint8_t* a, int64_t a_stride, const IntegerStrip& strip,
                                                   int64_t k, int32_t* sums) {
  __m512i total[M][kSumVectors];
#pragma GCC unroll 6
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kSumVectors; ++v) total[i][v] = _mm512_setzero_si512();
  for (int64_t l = 0; l < k; l += 4) {
    Weights weights[kSumVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kSumVectors; ++v) {
      const int8_t* at = strip.codes + (l * kSumVectors + v * 4) * 16;
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
  add_all_errors<M>(total, strip, [&](int i, int64_t l) { return a + i * a_stride + l; });
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kSumVectors; ++v) _mm512_storeu_si512(sums + (i * kSumVectors + v) * 16, total[i][v]);
}

inline void sum_strip(int64_t rows, const uint8_t* a, int64_t a_stride, const IntegerStrip& strip, int64_t k,
                      int32_t* sums) {
  if (rows == 1) sum_dots<1>(a, a_stride, strip, k, sums);
  if (rows == 2) sum_dots<2>(a, a_stride, strip, k, sums);
  if (rows == 3) sum_dots<3>(a, a_stride, strip, k, sums);
  if (rows == 4) sum_dots<4>(a, a_stride, strip, k, sums);
}

// Gives the sums of rows [first, first + M) to finish(row, sums of the strip's vectors).
template <int M, typename Finish>
[[gnu::target(TESSERA_DOTS_TARGET), gnu::always_inline]] inline void sum_pieces(int first, const IntegerPieces& a,
                                                                                const IntegerStrip& strip,
                                                                                const Finish& finish) {
  __m512i total[M][kSumVectors];
#pragma GCC unroll 6
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < kSumVectors; ++v) total[i][v] = _mm512_setzero_si512();
  const int8_t* codes = strip.codes;
  for (int64_t p = 0; p < a.count; ++p) {
    const uint8_t* rows[M];
#pragma GCC unroll 6
    for (int i = 0; i < M; ++i) rows[i] = a.at[p * a.step + first + i];
    for (int64_t l = 0; l < a.bytes; l += 4, codes += kSumVectors * 64) {
      Weights weights[kSumVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kSumVectors; ++v) weights[v] = weights_of(_mm512_loadu_si512(codes + v * 64));
#pragma GCC unroll 6
      for (int i = 0; i < M; ++i) {
        const Group group = group_of_lanes(_mm512_set1_epi32(group_of(rows[i] + l)));
#pragma GCC unroll 4
        for (int v = 0; v < kSumVectors; ++v) total[i][v] = dot(total[i][v], group, weights[v]);
      }
    }
  }
  add_all_errors<M>(total, strip,
                    [&](int i, int64_t l) { return a.at[l / a.bytes * a.step + first + i] + l % a.bytes; });
#pragma GCC unroll 6
  for (int i = 0; i < M; ++i) finish(first + i, total[i]);
}

template <typename Finish>
[[gnu::target(TESSERA_DOTS_TARGET), gnu::always_inline]] inline void sum_rows(int64_t rows, const IntegerPieces& a,
                                                                              const IntegerStrip& strip,
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

[[gnu::target(TESSERA_DOTS_TARGET)]] inline void sums_of_tile(int64_t rows, const IntegerPieces& a,
                                                              const IntegerStrip& strip, int32_t* sums) {
  sum_rows(rows, a, strip, StoredSums{sums});
}

[[gnu::target(TESSERA_DOTS_TARGET)]] inline void codes_of_tile(int64_t rows, const IntegerPieces& a,
                                                               const IntegerStrip& strip, const CodesOfSums& codes) {
  if (codes.added)
    sum_rows(rows, a, strip, StoredSumsOfCodes{{codes}});
  else
    sum_rows(rows, a, strip, StoredCodes{codes});
}

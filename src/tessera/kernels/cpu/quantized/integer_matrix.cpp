#include "tessera/kernels/cpu/quantized/integer_matrix.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "tessera/kernels/cpu/library/onednn.h"
#include "tessera/kernels/cpu/quantized/integer_codes.h"

// A matrix register holds 16 rows of 64 bytes: of a, or of a strip, whose 16 groups give one vector each, 16 columns.
// An instruction multiplies the two, and adds the products to 16 x 16 sums, which are a register, too. Two registers of
// a (4 and 5) and two of the strip (6 and 7) make four of sums, half a strip for 32 rows:
//
//                6            7
//     4     sums in 0    sums in 1
//     5     sums in 2    sums in 3
//
// Sums then go to memory in the first cache, where codes are made of them while the next are being multiplied: one is
// the matrix unit's work, the other that of vectors.
namespace tessera::kernels {
namespace {

#if defined(__x86_64__)
#define TESSERA_MATRIX_TARGET "amx-tile,amx-int8,avx512f,avx512bw"

constexpr int64_t kRows = 16, kBytes = 64;  // of a register
constexpr int64_t kStripBytes = 64 * 4;     // of a group
constexpr int64_t kColumns = 64, kBlock = 2 * kRows;

struct alignas(64) Shapes {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};

  // For so many rows, 32 at most.
  explicit Shapes(int64_t count) {
    const auto first = static_cast<uint8_t>(std::min(count, kRows)), second = static_cast<uint8_t>(count - first);
    for (int i : {0, 1, 4}) set(i, first);
    for (int i : {2, 3, 5}) set(i, std::max<uint8_t>(second, 1));
    for (int i : {6, 7}) set(i, kRows);
  }
  void set(int i, uint8_t count) {
    bytes[i] = kBytes;
    rows[i] = count;
  }
};

// The compiler does not know what these instructions read.
inline void memory_is_read() {
  asm volatile("" ::: "memory");
}

// 64 bytes of both registers of rows, or of one, by their groups.
template <bool kBoth>
[[gnu::target(TESSERA_MATRIX_TARGET), gnu::always_inline]] inline void add_products(const uint8_t* a, int64_t stride,
                                                                                    const int8_t* codes) {
  _tile_loadd(4, a, stride);
  if constexpr (kBoth) _tile_loadd(5, a + kRows * stride, stride);
  _tile_loadd(6, codes, kStripBytes);
  _tile_loadd(7, codes + kBytes, kStripBytes);
  _tile_dpbusd(0, 4, 6);
  _tile_dpbusd(1, 4, 7);
  if constexpr (kBoth) {
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
}

// The rows and the strip, whose last bytes and groups, fewer than a register holds, are copies filled up with zeros.
class Operands {
 public:
  Operands(const IntegerPieces& a, int64_t rows, const IntegerStrip& strip)
      : stride_(rows > 1 ? a.at[1] - a.at[0] : a.bytes),
        codes_(strip.codes),
        whole_(a.bytes / kBytes * kBytes),
        left_(a.bytes - whole_) {
    if (left_ == 0) return;
    const int64_t bytes = left_ / 4 * kStripBytes;
    std::memcpy(last_codes_, codes_ + whole_ / 4 * kStripBytes, static_cast<size_t>(bytes));
    std::memset(last_codes_ + bytes, 0, static_cast<size_t>(kRows * kStripBytes - bytes));
    std::memset(last_rows_, 0, sizeof last_rows_);
  }

  // Sums of `rows` rows, 16 at most if not kBoth, by columns `first` to `first` + 31, as rows `sums_stride` apart.
  template <bool kBoth>
  [[gnu::target(TESSERA_MATRIX_TARGET), gnu::always_inline]] inline void multiply(const uint8_t* a, int64_t rows,
                                                                                  int64_t first, int32_t* sums,
                                                                                  int64_t sums_stride) {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kBoth) {
      _tile_zero(2);
      _tile_zero(3);
    }
    const int8_t* codes = codes_ + first * 4;
    for (int64_t l = 0; l < whole_; l += kBytes, codes += kRows * kStripBytes)
      add_products<kBoth>(a + l, stride_, codes);
    if (left_ > 0) {
      for (int64_t i = 0; i < rows; ++i)
        std::memcpy(last_rows_ + i * kBytes, a + i * stride_ + whole_, static_cast<size_t>(left_));
      memory_is_read();
      add_products<kBoth>(last_rows_, kBytes, last_codes_ + first * 4);
    }
    const auto bytes = static_cast<int64_t>(sizeof(int32_t)) * sums_stride;
    _tile_stored(0, sums + first, bytes);
    _tile_stored(1, sums + first + kRows, bytes);
    if constexpr (kBoth) {
      _tile_stored(2, sums + kRows * sums_stride + first, bytes);
      _tile_stored(3, sums + kRows * sums_stride + first + kRows, bytes);
    }
  }

 private:
  int64_t stride_;
  const int8_t* codes_;
  int64_t whole_, left_;
  alignas(64) int8_t last_codes_[kRows * kStripBytes];
  alignas(64) uint8_t last_rows_[kBlock * kBytes];
};

// Where the sums of all rows go.
struct Stored {
  int32_t* sums;
  int64_t stride;

  int32_t* block(int64_t row) const { return sums + row * stride; }
  void half_is_made(int64_t, int64_t) const {}
  void all_are_made(int64_t) const {}
};

// Two blocks of sums: one is made while the rows of the other go to finish(row, sums of the strip's vectors).
template <typename Finish>
struct Finished {
  const Finish& finish;
  static constexpr int64_t stride = kColumns;
  alignas(64) int32_t sums[2][kBlock * kColumns];

  explicit Finished(const Finish& by) : finish(by) {}
  int32_t* block(int64_t row) { return sums[row / kBlock % 2]; }
  [[gnu::target(TESSERA_MATRIX_TARGET), gnu::always_inline]] inline void half_is_made(int64_t row, int64_t half) {
    if (row > 0) finish_rows(row - (2 - half) * kRows, row - (1 - half) * kRows);
  }
  [[gnu::target(TESSERA_MATRIX_TARGET), gnu::always_inline]] inline void all_are_made(int64_t rows) {
    finish_rows((rows - 1) / kBlock * kBlock, rows);
  }
  [[gnu::target(TESSERA_MATRIX_TARGET), gnu::always_inline]] inline void finish_rows(int64_t first, int64_t end) {
    for (int64_t row = first; row < end; ++row) {
      const int32_t* from = block(row) + row % kBlock * kColumns;
      __m512i vectors[kSumVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kSumVectors; ++v) vectors[v] = _mm512_loadu_si512(from + v * 16);
      finish(static_cast<int>(row), vectors);
    }
  }
};

template <typename Target>
[[gnu::target(TESSERA_MATRIX_TARGET), gnu::always_inline]] inline void multiply(int64_t rows, const IntegerPieces& a,
                                                                                const IntegerStrip& strip,
                                                                                Target& target) {
  Operands operands(a, rows, strip);
  std::optional<Shapes> shapes;
  for (int64_t row = 0; row < rows; row += kBlock) {
    const int64_t count = std::min(kBlock, rows - row);
    if (row == 0 || count < kBlock) {
      shapes.emplace(count);
      memory_is_read();
      _tile_loadconfig(&*shapes);
    }
    for (const int64_t half : {0, 1}) {
      if (count > kRows)
        operands.multiply<true>(a.at[row], count, half * kColumns / 2, target.block(row), target.stride);
      else
        operands.multiply<false>(a.at[row], count, half * kColumns / 2, target.block(row), target.stride);
      target.half_is_made(row, half);
    }
  }
  target.all_are_made(rows);
  _tile_release();
}

[[gnu::target(TESSERA_MATRIX_TARGET)]] void sums_of_tile(int64_t rows, const IntegerPieces& a,
                                                         const IntegerStrip& strip, int32_t* sums, int64_t stride) {
  Stored stored{sums, stride};
  multiply(rows, a, strip, stored);
}

template <typename Finish>
[[gnu::target(TESSERA_MATRIX_TARGET), gnu::always_inline]] inline void finish(int64_t rows, const IntegerPieces& a,
                                                                              const IntegerStrip& strip,
                                                                              const Finish& finish) {
  Finished<Finish> finished(finish);
  multiply(rows, a, strip, finished);
}

[[gnu::target(TESSERA_MATRIX_TARGET)]] void codes_of_tile(int64_t rows, const IntegerPieces& a,
                                                          const IntegerStrip& strip, const CodesOfSums& codes) {
  if (codes.added)
    finish(rows, a, strip, StoredSumsOfCodes{{codes}});
  else
    finish(rows, a, strip, StoredCodes{codes});
}
#undef TESSERA_MATRIX_TARGET
#endif

}  // namespace

const IntegerTile* integer_matrix_tile() {
#if defined(__x86_64__)
  static constexpr IntegerTile kMatrix{most_tile_rows, false, sums_of_tile, codes_of_tile};
  if (onednn::has_amx()) return &kMatrix;
#endif
  return nullptr;
}

}  // namespace tessera::kernels

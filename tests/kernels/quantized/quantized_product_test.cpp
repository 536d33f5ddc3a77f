#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>

#include "kernels/random_tensors.h"
#include "kernels/run_kernel.h"
#include "tessera/base/error.h"
#include "tessera/kernels/cpu/quantized/block_digits.h"
#include "tessera/kernels/cpu/quantized/block_strip.h"
#include "tessera/kernels/cpu/quantized/integer_product.h"
#include "tessera/kernels/cpu/quantized/integer_strip.h"

namespace tessera::kernels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr unsigned kBytesSeed = 11;

int byte_element(const Tensor& tensor, int64_t i) {
  return tensor.dtype == DType::uint8 ? tensor.as<uint8_t>()[i] : tensor.as<int8_t>()[i];
}

/// Σ (a - x)(b - y) of matrices.
std::vector<int32_t> exact_product(const Tensor& a, const Tensor& b, const Tensor& x, const Tensor& y) {
  const int64_t m = a.dims[0], k = a.dims[1], n = b.dims[1];
  std::vector<int32_t> c;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      int64_t sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += (byte_element(a, i * k + l) - byte_element(x, x.count() == 1 ? 0 : i)) *
               (byte_element(b, l * n + j) - byte_element(y, y.count() == 1 ? 0 : j));
      c.push_back(static_cast<int32_t>(sum));
    }
  return c;
}

TEST(MatMulInteger, SumsEveryPairOfTypesExactly) {
  for (const DType left : {DType::uint8, DType::int8})
    for (const DType right : {DType::uint8, DType::int8})
      for (const auto& [m, k, n] :
           {std::array<int64_t, 3>{1, 64, 64}, {3, 7, 5}, {4, 130, 65}, {5, 33, 70}, {40, 300, 130}})
        for (const bool lists : {false, true}) {
          SCOPED_TRACE(fmt::format("{} by {}, {} {} {}, lists {}", name_of(left), name_of(right), m, k, n, lists));
          const std::vector<Tensor> inputs = {random_bytes(left, {m, k}, kBytesSeed),
                                              random_bytes(right, {k, n}, kBytesSeed + 1),
                                              random_bytes(left, lists ? Dims{m} : Dims{}, kBytesSeed + 2),
                                              random_bytes(right, lists ? Dims{n} : Dims{1}, kBytesSeed + 3)};
          const auto expected = exact_product(inputs[0], inputs[1], inputs[2], inputs[3]);
          for (const int threads : {1, 2})
            EXPECT_EQ(
                values_of<int32_t>(run_kernel_one("MatMulInteger", inputs, DType::int32, {m, n}, {.threads = threads})),
                expected);
          EXPECT_EQ(values_of<int32_t>(run_packed_product("MatMulInteger", "", inputs, DType::int32, {m, n})),
                    expected);
        }
}

// A product is divided into blocks of rows and columns, each by one thread.
TEST(MatMulInteger, GivesRowsOfAllBlocksTheirZeroPoints) {
  for (const auto& [m, k, n] : {std::array<int64_t, 3>{700, 9, 70}, {333, 12, 1}, {90, 700, 1400}, {2, 3, 1030}})
    for (const DType left : {DType::uint8, DType::int8}) {
      SCOPED_TRACE(fmt::format("{}, {} {} {}", name_of(left), m, k, n));
      const std::vector<Tensor> inputs = {
          random_bytes(left, {m, k}, kBytesSeed), random_bytes(DType::int8, {k, n}, kBytesSeed + 1),
          random_bytes(left, {m}, kBytesSeed + 2), random_bytes(DType::int8, {n}, kBytesSeed + 3)};
      const auto expected = exact_product(inputs[0], inputs[1], inputs[2], inputs[3]);
      for (const int threads : {1, 2, 5})
        EXPECT_EQ(
            values_of<int32_t>(run_kernel_one("MatMulInteger", inputs, DType::int32, {m, n}, {.threads = threads})),
            expected);
      // The same rows again and again.
      const Tensor& rows = inputs[0];
      std::vector<uint8_t> repeated;
      std::vector<int32_t> expected_again;
      for (int again = 0; again < 3; ++again) {
        const auto* bytes = reinterpret_cast<const uint8_t*>(rows.data);
        repeated.insert(repeated.end(), bytes, bytes + rows.bytes);
        expected_again.insert(expected_again.end(), expected.begin(), expected.end());
      }
      Tensor all = Tensor::zeros(left, {3, m, k});
      std::memcpy(all.mutable_data(), repeated.data(), repeated.size());
      EXPECT_EQ(values_of<int32_t>(run_kernel_one("MatMulInteger", {all, inputs[1], inputs[2], inputs[3]}, DType::int32,
                                                  {3, m, n}, {.threads = 2})),
                expected_again);
    }
}

// Pairs of products of the largest numbers do not fit in 16 bits.
TEST(MatMulInteger, DoesNotSaturate) {
  constexpr int64_t k = 4096, n = 64;
  const Tensor b = Tensor::of<int8_t>(DType::int8, {k, n}, std::vector<int8_t>(k * n, -128));
  for (const int64_t m : {1, 8}) {
    const Tensor a = Tensor::of<uint8_t>(DType::uint8, {m, k}, std::vector<uint8_t>(m * k, 255));
    EXPECT_THAT(values_of<int32_t>(run_kernel_one("MatMulInteger", {a, b}, DType::int32, {m, n})),
                testing::Each(-128 * 255 * k));
  }
}

/// Weights whose pairs times 255 fit in 16 bits, all, most or few of them.
std::vector<Tensor> weights_with_wide_pairs(int64_t k, int64_t n) {
  std::vector<Tensor> weights;
  for (const int64_t every : {0, 997, 1}) {
    Tensor b = random_bytes(DType::int8, {k, n}, kBytesSeed + 1);
    auto* elements = reinterpret_cast<int8_t*>(b.mutable_data());
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < n; ++j)
        if (every == 0 || (l / 2 * n + j) % every != 0)
          elements[l * n + j] /= 2;
        else if (every > 1)
          elements[l * n + j] = j % 2 == 0 ? 127 : -128;
    weights.push_back(b);
  }
  return weights;
}

TEST(IntegerStrip, ListsPairsThatDoNotFitInSixteenBits) {
  std::vector<int8_t> codes(8 * 256);
  const auto listed = [&] {
    std::vector<int32_t> wide(4 + 2, -7);
    list_wide(codes.data(), 8, 2, wide.data());
    return wide;
  };
  EXPECT_THAT(listed(), ElementsAre(0, 0, 0, 0, -7, -7));
  codes[256 + 64] = codes[256 + 65] = 64;   // 128 · 255 fits
  codes[256 + 66] = codes[256 + 67] = -64;  // and so does its opposite
  codes[256 + 128] = 127, codes[256 + 129] = -128;
  codes[512 + 1] = codes[512 + 2] = 127;  // no pair
  EXPECT_THAT(listed(), ElementsAre(0, 0, 0, 0, -7, -7));
  codes[7 * 256 + 192] = 65, codes[7 * 256 + 193] = 64;
  EXPECT_THAT(listed(), ElementsAre(0, 0, 0, 1, 7, -7));
  codes[64] = codes[65] = -65;
  EXPECT_THAT(listed(), ElementsAre(0, 1, 0, 1, 0, 7));
  codes[3 * 256] = codes[3 * 256 + 1] = 127;
  EXPECT_EQ(listed()[0], -1) << "three are more than two";
}

TEST(MatMulInteger, HasOneSumByAllInstructionsForDotProducts) {
  for (const int64_t k : {52, 1030}) {
    const IntegerWeight weight{k, 64};
    const int64_t stride = (k + 3) / 4 * 4;
    const Tensor a = random_bytes(DType::uint8, {4, stride}, kBytesSeed);
    for (const Tensor& b : weights_with_wide_pairs(k, 64)) {
      std::vector<std::byte> packed(static_cast<size_t>(weight.bytes()));
      pack_integers(weight, DType::int8, b.data, packed.data(), 1);
      const IntegerStrip strip = weight.strip(weight.columns(packed.data()));
      for (int64_t rows = 1; rows <= most_integer_rows; ++rows) {
        const std::vector<IntegerStripSum> forms = integer_strip_sums();
        std::vector<int32_t> plain(rows * 64);
        forms.back()(rows, a.as<uint8_t>().data(), stride, strip, k, plain.data());
        for (const IntegerStripSum form : forms) {
          std::vector<int32_t> sums(rows * 64);
          form(rows, a.as<uint8_t>().data(), stride, strip, k, sums.data());
          EXPECT_EQ(sums, plain);
        }
      }
    }
  }
}

// Rows in so many pieces of so many bytes; the first column's sums are beyond all codes, and the second's are small.
void expect_sums_and_codes(const IntegerTile& tile, int64_t pieces_of_row, int64_t bytes) {
  const int64_t k = pieces_of_row * bytes;
  SCOPED_TRACE(fmt::format("{} rows of {} pieces of {} bytes", tile.rows, pieces_of_row, bytes));
  const IntegerWeight weight{k, 64};
  const Tensor a = random_bytes(DType::uint8, {tile.rows, k}, kBytesSeed);
  std::vector<const uint8_t*> pieces(pieces_of_row * tile.rows);
  for (int64_t p = 0; p < pieces_of_row; ++p)
    for (int64_t i = 0; i < tile.rows; ++i) pieces[p * tile.rows + i] = a.as<uint8_t>().data() + i * k + p * bytes;
  const IntegerPieces rows{pieces.data(), tile.rows, pieces_of_row, bytes};
  std::vector<int32_t> addend(64, -700);
  std::vector<float> factor(64, 0.0021F), bias(64, 1.5F);
  factor[0] = 1e12F;
  factor[1] = 1e-38F;
  for (const Tensor& b : weights_with_wide_pairs(k, 64)) {
    std::vector<std::byte> packed(static_cast<size_t>(weight.bytes()));
    pack_integers(weight, DType::int8, b.data, packed.data(), 1);
    const IntegerStrip strip = weight.strip(weight.columns(packed.data()));
    for (int64_t count = 1; count <= tile.rows; ++count) {
      std::vector<int32_t> sums(count * 64), expected(count * 64);
      tile.sums(count, rows, strip, sums.data(), 64);
      for (int64_t i = 0; i < count; ++i)
        integer_strip_sums().back()(1, a.as<uint8_t>().data() + i * k, k, strip, k, expected.data() + i * 64);
      ASSERT_EQ(sums, expected) << count;
      for (const auto& [least, most, zero] : {std::tuple(-9.0F, 246.0F, 9), {0.0F, 246.0F, 9}, {-131.0F, 124.0F, 3}}) {
        constexpr int64_t kStride = 70;
        const bool has_sign = least + static_cast<float>(zero) < 0;
        const auto number = [&](std::byte code) {
          return has_sign ? static_cast<int>(static_cast<int8_t>(code)) : static_cast<int>(static_cast<uint8_t>(code));
        };
        std::vector<std::byte> codes(count * kStride, std::byte{0xAB}), sums_of_codes = codes;
        const Tensor others = random_bytes(DType::uint8, {count, kStride}, kBytesSeed + 1);
        const CodesAdded added{others.data, kStride, {0.21F, 0.33F, 0.5F, least, most, zero, -3, zero}};
        const CodesOfSums of{addend.data(), factor.data(), bias.data(),  0.37F,   least,  most,
                             zero,          has_sign,      codes.data(), kStride, nullptr};
        tile.codes(count, rows, strip, of);
        CodesOfSums and_others = of;
        and_others.out = sums_of_codes.data();
        and_others.added = &added;
        tile.codes(count, rows, strip, and_others);
        for (int64_t i = 0; i < count; ++i)
          for (int64_t j = 0; j < kStride; ++j) {
            const int64_t at = i * kStride + j;
            const float ratio =
                j < 64 ? (static_cast<float>(sums[i * 64 + j] + addend[j]) * factor[j] + bias[j]) / 0.37F : 0;
            const int code = static_cast<int>(std::nearbyint(std::clamp(ratio, least, most))) + zero;
            ASSERT_EQ(codes[at], j < 64 ? static_cast<std::byte>(code) : std::byte{0xAB}) << i << " " << j;
            const float both =
                static_cast<float>(code - zero) * 0.21F + static_cast<float>(number(others.data[at]) + 3) * 0.33F;
            const int sum = static_cast<int>(std::nearbyint(std::clamp(both / 0.5F, least, most))) + zero;
            ASSERT_EQ(sums_of_codes[at], j < 64 ? static_cast<std::byte>(sum) : std::byte{0xAB}) << i << " " << j;
          }
      }
    }
  }
}

TEST(IntegerTile, GivesTheSumsOfStripsAndTheirCodes) {
  if (integer_tiles().empty()) GTEST_SKIP() << "there are no dot products of vectors here";
  for (const IntegerTile* tile : integer_tiles()) {
    if (tile->in_pieces) expect_sums_and_codes(*tile, 3, 300);
    for (const int64_t bytes : {12, 64, 128, 252}) expect_sums_and_codes(*tile, 1, bytes);
  }
}

// Ratios at and beside the borders between codes, in which a product by the reciprocal alone would err.
TEST(IntegerTile, RoundsRatiosAsADivisionDoes) {
  if (integer_tiles().empty()) GTEST_SKIP() << "there are no dot products of vectors here";
  const std::vector<int8_t> zeros(64 * 4);
  const std::vector<int32_t> wide(4);
  const IntegerStrip strip{zeros.data(), wide.data()};
  const std::vector<uint8_t> row(4);
  const uint8_t* at = row.data();
  const std::vector<int32_t> addend(64, 0);
  const std::vector<float> factor(64, 1);
  std::vector<float> bias(64);
  for (const float scale : {0.37F, 0.1F, 1 / 3.0F, 0x1.fffffep-7F, 0x1.000002p3F, 0x1.23456p-39F, 0x1.fffffep39F, 1.0F})
    for (int code = -128; code < 128; ++code) {
      float border = (static_cast<float>(code) - 0.5F) * scale;
      for (int i = 0; i < 32; ++i) border = std::nextafter(border, -std::numeric_limits<float>::infinity());
      for (float& x : bias) x = border = std::nextafter(border, std::numeric_limits<float>::infinity());
      std::vector<std::byte> codes(64);
      for (const IntegerTile* tile : integer_tiles()) {
        tile->codes(1, {&at, 1, 1, 4}, strip,
                    {addend.data(), factor.data(), bias.data(), scale, -128, 127, 0, true, codes.data(), 64, nullptr});
        for (int64_t j = 0; j < 64; ++j)
          EXPECT_EQ(static_cast<int8_t>(codes[j]), std::nearbyint(std::clamp(bias[j] / scale, -128.0F, 127.0F)))
              << bias[j] << " / " << scale;
      }
    }
}

// A weight that lies turned is packed as it lies.
TEST(MatMulInteger, PacksATurnedWeight) {
  constexpr int64_t m = 5, k = 70, n = 67;
  const Tensor a = random_bytes(DType::uint8, {m, k}, kBytesSeed),
               b = random_bytes(DType::int8, {k, n}, kBytesSeed + 1);
  Tensor turned = Tensor::zeros(DType::int8, {n, k});
  for (int64_t l = 0; l < k; ++l)
    for (int64_t j = 0; j < n; ++j) turned.mutable_data()[j * k + l] = b.data[l * n + j];
  EXPECT_EQ(values_of<int32_t>(
                run_packed_product("MatMulInteger", "", {a, turned}, DType::int32, {m, n}, {{"transB", int64_t{1}}})),
            values_of<int32_t>(run_kernel_one("MatMulInteger", {a, b}, DType::int32, {m, n})));
}

TEST(MatMulInteger, MultipliesBatches) {
  const Tensor a = Tensor::of<uint8_t>(DType::uint8, {2, 1, 2}, {1, 2, 3, 4});
  const Tensor b = Tensor::of<int8_t>(DType::int8, {2, 2, 1}, {1, -1, 2, 1});
  EXPECT_THAT(values_of<int32_t>(run_kernel_one("MatMulInteger", {a, b}, DType::int32, {2, 1, 1})),
              ElementsAre(-1, 10));
}

TEST(MatMulInteger, TakesEmptyExtents) {
  const auto bytes = [](Dims dims) { return Tensor::zeros(DType::uint8, std::move(dims)); };
  EXPECT_THAT(values_of<int32_t>(run_kernel_one("MatMulInteger", {bytes({2, 0}), bytes({0, 3})}, DType::int32, {2, 3})),
              testing::Each(0));
  EXPECT_EQ(run_kernel_one("MatMulInteger", {bytes({0, 4}), bytes({4, 3})}, DType::int32, {0, 3}).count(), 0);
  EXPECT_EQ(run_kernel_one("MatMulInteger", {bytes({2, 4}), bytes({4, 0})}, DType::int32, {2, 0}).count(), 0);
}

/// A product with codes in blocks, and the sums in double.
struct BlockCase {
  int64_t m, k, n, block;
  int bits;
  enum { none, packed, floats } zeros;
};

int stored_code(const Tensor& codes, int bits, int64_t i) {
  const auto byte = codes.as<uint8_t>()[bits == 8 ? i : i / 2];
  return bits == 8 ? byte : (byte >> (i % 2 * 4)) & 15;
}

std::vector<float> normal_floats(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

void check_nbits(const BlockCase& at) {
  const int64_t blocks = (at.k + at.block - 1) / at.block, per_byte = 8 / at.bits;
  const int64_t zero_row = (blocks + per_byte - 1) / per_byte;
  const Tensor a = floats({at.m, at.k}, normal_floats(at.m * at.k, kBytesSeed));
  const Tensor codes = random_bytes(DType::uint8, {at.n, blocks, at.block * at.bits / 8}, kBytesSeed + 1);
  const Tensor scales = floats({at.n, blocks}, normal_floats(at.n * blocks, kBytesSeed + 2));
  Tensor zeros;
  if (at.zeros == BlockCase::packed) zeros = random_bytes(DType::uint8, {at.n, zero_row}, kBytesSeed + 3);
  if (at.zeros == BlockCase::floats) zeros = floats({at.n, blocks}, normal_floats(at.n * blocks, kBytesSeed + 3));
  std::vector<double> expected, sizes;
  for (int64_t i = 0; i < at.m; ++i)
    for (int64_t j = 0; j < at.n; ++j) {
      double sum = 0, size = 0;
      for (int64_t l = 0; l < at.k; ++l) {
        const int64_t b = l / at.block;
        const double zero = at.zeros == BlockCase::none     ? 1 << (at.bits - 1)
                            : at.zeros == BlockCase::floats ? zeros.as<float>()[j * blocks + b]
                                                            : stored_code(zeros, at.bits, j * zero_row * per_byte + b);
        const double weight =
            (stored_code(codes, at.bits, j * blocks * at.block + l) - zero) * scales.as<float>()[j * blocks + b];
        sum += a.as<float>()[i * at.k + l] * weight;
        size += std::abs(a.as<float>()[i * at.k + l] * weight);
      }
      expected.push_back(sum);
      sizes.push_back(size);
    }
  const Attributes attributes = {{"bits", int64_t{at.bits}}, {"block_size", at.block}};
  const std::vector<Tensor> inputs = {a, codes, scales, zeros};
  const auto plain = values_of<float>(run_kernel_one("MatMulNBits", inputs, DType::float32, {at.m, at.n},
                                                     {.attributes = attributes, .domain = "com.microsoft"}));
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(plain[i], expected[i], 1e-5 * sizes[i] + 1e-6) << i;
  for (const int threads : {1, 2})
    EXPECT_EQ(values_of<float>(run_packed_product("MatMulNBits", "com.microsoft", inputs, DType::float32, {at.m, at.n},
                                                  attributes, threads)),
              plain);
}

TEST(MatMulNBits, UnpacksBlocks) {
  for (const int bits : {4, 8})
    for (const auto zeros : {BlockCase::none, BlockCase::packed, BlockCase::floats})
      for (const int64_t m : {1, 2, 3, 4, 7})
        for (const auto& [k, n, block] :
             {std::array<int64_t, 3>{64, 64, 32}, {96, 70, 32}, {40, 5, 16}, {2304, 130, 128}}) {
          SCOPED_TRACE(fmt::format("{} bits, zeros {}, {} {} {}, blocks of {}", bits, int(zeros), m, k, n, block));
          check_nbits({m, k, n, block, bits, zeros});
        }
}

/// A strip of codes in blocks, at random, packed.
std::vector<std::byte> random_strip(const BlockWeight& weight) {
  const Tensor codes = random_bytes(DType::uint8, {weight.n, weight.k * weight.bits / 8}, kBytesSeed);
  const auto scales = normal_floats(weight.n * weight.blocks(), kBytesSeed + 1);
  const auto zeros = normal_floats(weight.n * weight.blocks(), kBytesSeed + 2);
  BlockSource source{.codes = codes.data, .scales = scales.data()};
  if (weight.zeros == BlockWeight::Zeros::floats) {
    source.zeros = zeros.data();
    source.zero_type = DType::float32;
  } else if (weight.zeros == BlockWeight::Zeros::integers) {
    source.zeros = codes.data;
  }
  source.zero_column = weight.blocks();
  source.code_column = weight.k;
  source.scale_column = weight.blocks();
  std::vector<std::byte> packed(static_cast<size_t>(weight.bytes()));
  pack_blocks(weight, source, packed.data(), 1);
  return packed;
}

struct alignas(64) DigitLine {
  std::byte bytes[64];
};

// An element is off by 2^-22 of its block's largest one at most, whatever that normal number is, and float32 rounds
// sums.
TEST(MatMulNBits, SumsByDigitsAsExactlyAsByFloats) {
  for (const int bits : {4, 8})
    for (const int64_t block : {8, 16, 24, 32, 256})
      for (const auto& [size, zeros] : {std::pair{1.0F, BlockWeight::Zeros::none},
                                        {1.0F, BlockWeight::Zeros::integers},
                                        {1.0F, BlockWeight::Zeros::floats},
                                        {1e-30F, BlockWeight::Zeros::none},
                                        {1e-37F, BlockWeight::Zeros::none},
                                        {1e30F, BlockWeight::Zeros::integers}}) {
        const BlockWeight weight{block * 5, BlockWeight::strip, block, bits, zeros};
        const DigitProduct digits = digit_product(weight);
        if (!digits.sum) GTEST_SKIP() << "this CPU has no dot products of bytes";
        const std::vector<std::byte> packed = random_strip(weight);
        std::vector<float> b(static_cast<size_t>(weight.k * weight.n));
        unpack_block_strip(weight, packed.data(), 0, weight.blocks(), b.data());
        auto a = normal_floats(most_block_rows * weight.k, kBytesSeed + 3);
        for (size_t i = 0; i < a.size(); ++i) a[i] *= size * (i % 7 == 0 ? 100.0F : i % 3 == 0 ? 0.01F : 1.0F);
        std::fill_n(a.begin() + weight.k, block, 0.0F);
        std::vector<float> a_sums;
        for (auto at = a.begin(); at != a.end(); at += block) a_sums.push_back(std::accumulate(at, at + block, 0.0F));
        for (int64_t rows = 1; rows <= most_block_rows; ++rows) {
          const auto lines = static_cast<size_t>(digit_row_bytes(weight)) / sizeof(DigitLine);
          std::vector<DigitLine> memory(rows * lines);
          for (int64_t i = 0; i < rows; ++i)
            ASSERT_TRUE(digits.split(weight, a.data() + i * weight.k, memory[i * lines].bytes));
          std::vector<float> sums(rows * weight.n), by_floats(rows * weight.n);
          digits.sum(weight, rows, memory[0].bytes, packed.data(), sums.data());
          sum_block_strip(weight, rows, a.data(), weight.k, a_sums.data(), packed.data(), by_floats.data());
          for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < weight.n; ++j) {
              double exact = 0, bound = 0, most = 0, sizes = 0;
              for (int64_t l = 0; l < weight.k; ++l) {
                const double x = a[i * weight.k + l], y = b[l * weight.n + j];
                exact += x * y;
                most = std::max(l % block == 0 ? 0 : most, std::abs(x));
                sizes = (l % block == 0 ? 0 : sizes) + std::abs(y);
                if (l % block == block - 1) bound += std::max(0x1p-22 * most, 0x1p-126) * sizes;
              }
              ASSERT_NEAR(sums[i * weight.n + j], exact, 2 * bound)
                  << bits << " bits in blocks of " << block << ", elements of " << size << ", row " << i << " of "
                  << rows << ", column " << j;
              ASSERT_NEAR(by_floats[i * weight.n + j], exact, 8 * bound) << "by floats";
            }
        }
      }
}

// What is infinite, or no number, has no digits.
TEST(MatMulNBits, TakesWhatIsNotFinite) {
  const Tensor codes = Tensor::of<uint8_t>(DType::uint8, {2, 1, 8}, std::vector<uint8_t>(16, 0x9a));
  const RunOptions options{.attributes = {{"bits", int64_t{4}}, {"block_size", int64_t{16}}},
                           .domain = "com.microsoft"};
  for (const float odd : {infinity, -infinity, std::nanf("")}) {
    std::vector<float> a(32, 1);
    a[3] = odd;
    const auto y = values_of<float>(run_kernel_one("MatMulNBits", {floats({2, 16}, a), codes, floats({2, 1}, {1, 2})},
                                                   DType::float32, {2, 2}, options));
    EXPECT_EQ(std::isnan(y[0]), std::isnan(odd));
    EXPECT_TRUE(std::isnan(odd) || y[0] == odd) << y[0];
    EXPECT_EQ(y[2], 8 * 1 + 8 * 2);
  }
}

// Texts of one batch do not share more than the weight.
TEST(MatMulNBits, GivesARowTheSameBitsBesideOneThatIsNotFinite) {
  constexpr int64_t kDepth = 64, kColumns = 40;
  const Tensor codes = random_bytes(DType::uint8, {kColumns, 4, 8}, kBytesSeed);
  const Tensor scales = floats({kColumns, 4}, std::vector<float>(kColumns * 4, 0.37F));
  const RunOptions options{.attributes = {{"bits", int64_t{4}}, {"block_size", int64_t{16}}},
                           .domain = "com.microsoft"};
  std::vector<float> both(2 * kDepth);
  for (size_t i = 0; i < both.size(); ++i) both[i] = std::sin(static_cast<float>(i + 1));
  const std::vector<float> second(both.begin() + kDepth, both.end());
  both[3] = infinity;
  const auto y = values_of<float>(run_kernel_one("MatMulNBits", {floats({2, kDepth}, both), codes, scales},
                                                 DType::float32, {2, kColumns}, options));
  const auto alone = values_of<float>(run_kernel_one("MatMulNBits", {floats({1, kDepth}, second), codes, scales},
                                                     DType::float32, {1, kColumns}, options));
  EXPECT_EQ(std::vector<float>(y.begin() + kColumns, y.end()), alone);
}

TEST(MatMulNBits, ComputesFloat16InFloat32) {
  const Tensor codes = random_bytes(DType::uint8, {3, 2, 8}, kBytesSeed);
  const std::vector<float> a = {1, 2, -1, 0.5F}, s = {1, 2, 0.5F, 1, 2, 1};
  std::vector<float> row;
  for (int i = 0; i < 32; ++i) row.push_back(a[static_cast<size_t>(i) % 4]);
  const Attributes attributes = {{"bits", int64_t{4}}, {"block_size", int64_t{16}}};
  const RunOptions options{.attributes = attributes, .domain = "com.microsoft"};
  const Tensor half = run_kernel_one(
      "MatMulNBits", {narrowed(DType::float16, {1, 32}, row), codes, narrowed(DType::float16, {3, 2}, s)},
      DType::float16, {1, 3}, options);
  const Tensor single =
      run_kernel_one("MatMulNBits", {floats({1, 32}, row), codes, floats({3, 2}, s)}, DType::float32, {1, 3}, options);
  EXPECT_EQ(widened(half), values_of<float>(single));
}

TEST(MatMulNBits, TakesEmptyExtents) {
  const RunOptions options{.attributes = {{"bits", int64_t{4}}, {"block_size", int64_t{16}}},
                           .domain = "com.microsoft"};
  const Tensor codes = random_bytes(DType::uint8, {3, 1, 8}, kBytesSeed);
  EXPECT_EQ(run_kernel_one("MatMulNBits", {floats({0, 16}, {}), codes, floats({3, 1}, {1, 1, 1})}, DType::float32,
                           {0, 3}, options)
                .count(),
            0);
  const Tensor none = Tensor::zeros(DType::uint8, {3, 0, 8});
  EXPECT_THAT(values_of<float>(run_kernel_one("MatMulNBits", {floats({2, 0}, {}), none, floats({3, 0}, {})},
                                              DType::float32, {2, 3}, options)),
              testing::Each(0));
}

/// Scales and zero points of a matrix of codes [k, n]: in blocks along k, one for each column, or one.
struct MatrixScales {
  int64_t block;  ///< 0: none
  bool single = false;
  bool turned = false;  ///< the matrix lies as [n, k]
};

void check_matrix(DType type, int64_t m, const MatrixScales& at) {
  constexpr int64_t k = 192, n = 66;
  SCOPED_TRACE(fmt::format("{}, {} rows, blocks of {}, {}{}", name_of(type), m, at.block, at.single ? "single" : "many",
                           at.turned ? ", turned" : ""));
  const Dims lies = at.turned ? Dims{n, k} : Dims{k, n};
  const Dims scales = at.single       ? Dims{}
                      : at.block == 0 ? Dims{n}
                      : at.turned     ? Dims{n, k / at.block}
                                      : Dims{k / at.block, n};
  // Sums of integers, which all ways compute exactly; scales are powers of two.
  std::vector<float> x(m * k), steps(count_of(scales));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
  for (size_t i = 0; i < steps.size(); ++i) steps[i] = i % 3 == 0 ? 0.5F : 2.0F;
  const std::vector<Tensor> matrix = {random_bytes(type, lies, kBytesSeed), floats(scales, steps),
                                      random_bytes(type, scales, kBytesSeed + 2)};
  Attributes dequantize = {{"axis", int64_t{(at.block > 0) == at.turned}}}, use;
  if (at.block > 0) dequantize["block_size"] = use["block_size"] = at.block;
  if (at.turned) use["transB"] = int64_t{1};
  const Tensor weight = run_kernel_one("DequantizeLinear", matrix, DType::float32, lies, {.attributes = dequantize});
  const Tensor a = floats({m, k}, x);
  const auto expected = values_of<float>(
      run_kernel_one("Gemm", {a, weight}, DType::float32, {m, n}, {.attributes = {{"transB", int64_t{at.turned}}}}));
  const std::vector<Tensor> inputs = {a, matrix[0], matrix[1], matrix[2]};
  EXPECT_EQ(values_of<float>(run_packed_product("MatMulBlocks", "tessera", inputs, DType::float32, {m, n}, use)),
            expected);
  EXPECT_EQ(values_of<float>(run_kernel_one("MatMulBlocks", inputs, DType::float32, {m, n},
                                            {.attributes = use, .domain = "tessera"})),
            expected);
}

TEST(MatMulBlocks, MultipliesByWhatDequantizeLinearGives) {
  for (const DType type : {DType::uint8, DType::int8, DType::uint4, DType::int4})
    for (const int64_t m : {1, 6})
      for (const bool turned : {false, true}) {
        check_matrix(type, m, {.block = 32, .turned = turned});
        check_matrix(type, m, {.block = 0, .turned = turned});
        check_matrix(type, m, {.block = 0, .single = true, .turned = turned});
      }
}

TEST(MatMulBlocks, TakesRowsOfAnyLengthWithoutBlocks) {
  for (const int64_t k : {1, 5, 129}) {
    const Tensor a = floats({2, k}, std::vector<float>(2 * k, 1));
    const Tensor codes = Tensor::of<int8_t>(DType::int8, {k, 1}, std::vector<int8_t>(k, -3));
    EXPECT_THAT(values_of<float>(
                    run_packed_product("MatMulBlocks", "tessera", {a, codes, floats({}, {2})}, DType::float32, {2, 1})),
                testing::Each(static_cast<float>(-6 * k)));
  }
}

}  // namespace
}  // namespace tessera::kernels

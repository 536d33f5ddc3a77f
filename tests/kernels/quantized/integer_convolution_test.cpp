#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/random_tensors.h"
#include "kernels/run_kernel.h"

namespace tessera::kernels {
namespace {

using Ints = std::vector<int64_t>;

constexpr unsigned kImageSeed = 29;

int code_at(const Tensor& codes, int64_t i) {
  return codes.dtype == DType::uint8 ? codes.as<uint8_t>()[i] : codes.as<int8_t>()[i];
}

/// A convolution of images [n, groups · c, h, w] by [groups · m, c, kh, kw].
struct ImageCase {
  int64_t n, groups, c, m, h, w, kh, kw;
  Ints strides{1, 1}, dilations{1, 1}, pads{0, 0, 0, 0};  ///< pads: top, left, bottom, right

  int64_t out(size_t d) const {
    const int64_t in = d == 0 ? h : w, kernel = d == 0 ? kh : kw;
    return (in + pads[d] + pads[d + 2] - (kernel - 1) * dilations[d] - 1) / strides[d] + 1;
  }
};

/// Σ (x - x_zero)(w - w_zero); elements beyond the image add nothing.
std::vector<int32_t> exact_sums(const ImageCase& at, const Tensor& x, const Tensor& w, const Tensor& x_zero,
                                const Tensor& w_zero) {
  std::vector<int32_t> sums;
  for (int64_t image = 0; image < at.n; ++image)
    for (int64_t o = 0; o < at.groups * at.m; ++o)
      for (int64_t p = 0; p < at.out(0) * at.out(1); ++p) {
        int32_t sum = 0;
        for (int64_t i = 0; i < at.c * at.kh * at.kw; ++i) {
          const int64_t c = i / (at.kh * at.kw), k0 = i / at.kw % at.kh, k1 = i % at.kw;
          const int64_t y0 = p / at.out(1) * at.strides[0] - at.pads[0] + k0 * at.dilations[0];
          const int64_t x0 = p % at.out(1) * at.strides[1] - at.pads[1] + k1 * at.dilations[1];
          if (y0 < 0 || y0 >= at.h || x0 < 0 || x0 >= at.w) continue;
          const int64_t channel = image * at.groups * at.c + o / at.m * at.c + c;
          sum += (code_at(x, (channel * at.h + y0) * at.w + x0) - code_at(x_zero, 0)) *
                 (code_at(w, o * at.c * at.kh * at.kw + i) - code_at(w_zero, w_zero.count() == 1 ? 0 : o));
        }
        sums.push_back(sum);
      }
  return sums;
}

void check_image(const ImageCase& at, DType left, DType right, bool lists) {
  const int64_t results = at.groups * at.m;
  const std::vector<Tensor> inputs = {random_bytes(left, {at.n, at.groups * at.c, at.h, at.w}, kImageSeed),
                                      random_bytes(right, {results, at.c, at.kh, at.kw}, kImageSeed + 1),
                                      random_bytes(left, {}, kImageSeed + 2),
                                      random_bytes(right, lists ? Dims{results} : Dims{1}, kImageSeed + 3)};
  const Attributes attributes = {
      {"group", at.groups}, {"strides", at.strides}, {"dilations", at.dilations}, {"pads", at.pads}};
  const Dims dims{at.n, results, at.out(0), at.out(1)};
  const auto expected = exact_sums(at, inputs[0], inputs[1], inputs[2], inputs[3]);
  for (const int threads : {1, 3}) {
    const RunOptions options{.attributes = attributes, .threads = threads};
    EXPECT_EQ(values_of<int32_t>(run_kernel_one("ConvInteger", inputs, DType::int32, dims, options)), expected);
    if (at.groups == 1 || at.c > 1) {
      EXPECT_EQ(
          values_of<int32_t>(run_packed_product("ConvInteger", "", inputs, DType::int32, dims, attributes, threads)),
          expected);
    }
  }
}

TEST(ConvInteger, SumsWindowsExactly) {
  const std::vector<ImageCase> cases = {
      {2, 1, 3, 5, 9, 8, 3, 3, {1, 1}, {1, 1}, {1, 1, 1, 1}},
      {1, 1, 64, 130, 7, 7, 1, 1},                                 // rows of the image as it lies
      {1, 1, 6, 7, 5, 6, 1, 1, {2, 1}},                            // pointwise with gaps
      {1, 1, 17, 66, 20, 21, 3, 2, {2, 1}, {1, 2}, {2, 0, 1, 3}},  // several tiles, windows in the padding alone
      {1, 3, 4, 5, 6, 5, 2, 3, {1, 2}, {2, 1}, {1, 1, 0, 2}},
      {2, 7, 1, 1, 6, 7, 3, 3, {1, 1}, {1, 1}, {1, 1, 1, 1}},  // each channel alone
      {1, 5, 1, 3, 6, 7, 3, 2, {2, 1}, {1, 2}, {1, 0, 0, 1}},
      {1, 1, 1, 1, 4, 4, 2, 2},
      {2, 1, 3, 66, 14, 13, 7, 7, {2, 2}, {1, 1}, {3, 3, 3, 3}},  // lines of the kernel are filled up
      {1, 1, 3, 5, 9, 9, 2, 5, {1, 1}, {2, 1}, {0, 2, 0, 2}},
      {1, 1, 5, 64, 6, 12, 1, 3, {1, 3}},
      {2, 1, 70, 65, 3, 5, 1, 1},  // a place of the image is a line
      {1, 1, 3, 4, 12, 20, 3, 5, {1, 2}, {1, 2}, {1, 0, 1, 0}},
      {1, 1, 2, 3, 2, 2, 3, 3, {1, 1}, {1, 1}, {4, 4, 4, 4}},
  };
  for (size_t i = 0; i < cases.size(); ++i)
    for (const DType left : {DType::uint8, DType::int8})
      for (const DType right : {DType::uint8, DType::int8})
        for (const bool lists : {false, true}) {
          SCOPED_TRACE(fmt::format("case {}, {} by {}, lists {}", i, name_of(left), name_of(right), lists));
          check_image(cases[i], left, right, lists);
        }
}

// Pairs of products of the largest numbers do not fit in 16 bits.
TEST(ConvInteger, DoesNotSaturate) {
  constexpr int64_t channels = 300;
  const Tensor x = Tensor::of<uint8_t>(DType::uint8, {1, channels, 4, 4}, std::vector<uint8_t>(channels * 16, 255));
  const Tensor w = Tensor::of<int8_t>(DType::int8, {2, channels, 3, 3}, std::vector<int8_t>(2 * channels * 9, -128));
  for (const int32_t sum : values_of<int32_t>(run_kernel_one("ConvInteger", {x, w}, DType::int32, {1, 2, 2, 2})))
    EXPECT_EQ(sum, -128 * 255 * 9 * channels);
}

TEST(ConvInteger, TakesLinesAndVolumesAndEmptyExtents) {
  const Tensor line = Tensor::of<uint8_t>(DType::uint8, {1, 1, 4}, {1, 2, 3, 4});
  const Tensor pair = Tensor::of<int8_t>(DType::int8, {1, 1, 2}, {1, -1});
  EXPECT_EQ(values_of<int32_t>(run_kernel_one("ConvInteger", {line, pair}, DType::int32, {1, 1, 3})),
            (std::vector<int32_t>{-1, -1, -1}));
  const Tensor volume = Tensor::of<uint8_t>(DType::uint8, {1, 1, 2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor whole = Tensor::of<int8_t>(DType::int8, {1, 1, 2, 2, 2}, std::vector<int8_t>(8, 2));
  EXPECT_EQ(values_of<int32_t>(run_kernel_one("ConvInteger", {volume, whole}, DType::int32, {1, 1, 1, 1, 1})),
            (std::vector<int32_t>{72}));
  const Tensor none = Tensor::zeros(DType::uint8, {0, 1, 4});
  EXPECT_EQ(run_kernel_one("ConvInteger", {none, pair}, DType::int32, {0, 1, 3}).count(), 0);
  // Sums of nothing, as of a rank that has no channel.
  EXPECT_EQ(values_of<int32_t>(run_kernel_one(
                "ConvInteger", {Tensor::zeros(DType::uint8, {1, 0, 4}), Tensor::zeros(DType::int8, {1, 0, 2})},
                DType::int32, {1, 1, 3})),
            (std::vector<int32_t>{0, 0, 0}));
}

}  // namespace
}  // namespace tessera::kernels

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "kernels/run_kernel.h"
#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatNear;
using testing::Pointwise;

std::vector<float> integers(int64_t count, int64_t least, int64_t most, int64_t step) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(least + i * step % (most - least + 1)));
  return values;
}

// 0.1 as a float is a little more than a tenth: in float32 a region of 10 pixels still has one pixel to a bin.
TEST(RoiAlign, TakesAsManySamplesAsTheTypeOfItsElementsSays) {
  const Tensor x = floats({1, 1, 4, 4}, integers(16, 0, 100, 37));
  const Tensor which = ints({1}, {0});
  const RunOptions options{.attributes = {{"spatial_scale", 0.1F}, {"sampling_ratio", int64_t{0}}}};
  const Tensor rois = floats({1, 4}, {5, 5, 35, 35});
  const std::vector<float> y =
      values_of<float>(run_kernel_one("RoiAlign", {x, rois, which}, DType::float32, {1, 1, 3, 3}, options));
  // Samples lie at 0.5, 1.5 and 2.5, between four pixels.
  const auto pixels = values_of<float>(x);
  for (int64_t r = 0; r < 3; ++r)
    for (int64_t c = 0; c < 3; ++c) {
      const float* at = pixels.data() + r * 4 + c;
      EXPECT_NEAR(y[r * 3 + c], (at[0] + at[1] + at[4] + at[5]) / 4, 1e-4);
    }
}

// The same region by few samples and by more than are listed at once.
TEST(RoiAlign, GivesMeansOfAnyNumberOfSamples) {
  std::vector<float> ramp;
  for (int i = 0; i < 2 * 8 * 8; ++i) ramp.push_back(static_cast<float>(i / 64 * 100 + i % 8));
  const Tensor x = floats({1, 2, 8, 8}, ramp), rois = floats({1, 4}, {1, 1, 7, 7}), which = ints({1}, {0});
  for (const int64_t ratio : {1, 2, 16, 17}) {
    const RunOptions options{.attributes = {{"sampling_ratio", ratio},
                                            {"coordinate_transformation_mode", std::string("output_half_pixel")}}};
    EXPECT_THAT(values_of<float>(run_kernel_one("RoiAlign", {x, rois, which}, DType::float32, {1, 2, 1, 2}, options)),
                Pointwise(FloatNear(1e-4), {2.5F, 5.5F, 102.5F, 105.5F}))
        << ratio;
  }
}

// The largest weighted pixel of the samples of a result; a sample outside the image counts as 0.
double largest_part(const std::vector<float>& plane, int64_t extent, double top, double left, double high, double wide,
                    int64_t ratio) {
  double most = -infinity;
  for (int64_t i = 0; i < ratio; ++i)
    for (int64_t j = 0; j < ratio; ++j) {
      const double y = top + (static_cast<double>(i) + 0.5) * high / static_cast<double>(ratio);
      const double x = left + (static_cast<double>(j) + 0.5) * wide / static_cast<double>(ratio);
      const auto outside = [&](double at) { return at < -1 || at > static_cast<double>(extent); };
      if (outside(y) || outside(x)) {
        most = std::max(most, 0.0);
        continue;
      }
      const auto inside = [&](double at) { return std::clamp(at, 0.0, static_cast<double>(extent - 1)); };
      const auto row = static_cast<int64_t>(inside(y)), column = static_cast<int64_t>(inside(x));
      const double dy = inside(y) - static_cast<double>(row), dx = inside(x) - static_cast<double>(column);
      for (int k = 0; k < 4; ++k) {
        const int64_t r = std::min(row + k / 2, extent - 1), c = std::min(column + k % 2, extent - 1);
        most = std::max(most, (k / 2 ? dy : 1 - dy) * (k % 2 ? dx : 1 - dx) * plane[r * extent + c]);
      }
    }
  return most;
}

TEST(RoiAlign, GivesTheLargestPartOfAnyNumberOfSamples) {
  // The second plane is negative, so that a sample outside is the largest.
  const std::vector<float> planes[2] = {integers(64, 1, 100, 37), integers(64, -100, -1, 37)};
  std::vector<float> both = planes[0];
  both.insert(both.end(), planes[1].begin(), planes[1].end());
  const Tensor x = floats({1, 2, 8, 8}, both), which = ints({2}, {0, 0});
  const Tensor rois = floats({2, 4}, {1, 1, 7, 7, -9, 3, 5, 9});
  const std::array<double, 4> regions[2] = {{1, 1, 6, 6}, {3, -9, 6, 14}};  // top, left, height, width
  for (const int64_t ratio : {1, 2, 5, 16, 17})
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 2}, {5, 5}}) {
      SCOPED_TRACE(testing::Message() << ratio << " samples, " << rows << " rows");
      const RunOptions options{.attributes = {{"sampling_ratio", ratio},
                                              {"mode", std::string("max")},
                                              {"coordinate_transformation_mode", std::string("output_half_pixel")}}};
      const auto y = values_of<float>(
          run_kernel_one("RoiAlign", {x, rois, which}, DType::float32, {2, 2, rows, columns}, options));
      size_t at = 0;
      for (const auto& [top, left, height, width] : regions)
        for (const auto& plane : planes)
          for (int64_t bin = 0; bin < rows * columns; ++bin, ++at) {
            const double high = height / static_cast<double>(rows), wide = width / static_cast<double>(columns);
            const double expected = largest_part(plane, 8, top + static_cast<double>(bin / columns) * high,
                                                 left + static_cast<double>(bin % columns) * wide, high, wide, ratio);
            EXPECT_NEAR(y[at], expected, 1e-3) << "element " << at;
          }
    }
}

// Few samples, and more than are listed at once; the second region has samples outside.
TEST(RoiAlign, IsNotANumberWhereAPixelIsNone) {
  for (const std::string mode : {"avg", "max"})
    for (const float pixel : {infinity, std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> pixels(64, 1);
      pixels[9] = pixel;
      const Tensor x = floats({1, 1, 8, 8}, pixels), which = ints({2}, {0, 0});
      const Tensor rois = floats({2, 4}, {0.5, 0.5, 2.5, 2.5, -9, -9, 4, 4});
      for (const int64_t ratio : {4, 17, 40}) {
        const RunOptions options{.attributes = {{"sampling_ratio", ratio}, {"mode", mode}}};
        const auto y =
            values_of<float>(run_kernel_one("RoiAlign", {x, rois, which}, DType::float32, {2, 1, 1, 1}, options));
        for (const float value : y) EXPECT_FALSE(std::isfinite(value)) << mode << " of " << pixel << ", " << ratio;
      }
    }
}

TEST(RoiAlign, RefusesMoreSamplesThanAnyImageHas) {
  const Tensor x = floats({1, 1, 2, 2}, {1, 2, 3, 4}), rois = floats({1, 4}, {0, 0, 1, 1}), which = ints({1}, {0});
  for (const int64_t ratio : {int64_t{4097}, int64_t{1518500250}, int64_t{1} << 31, int64_t{1} << 32}) {
    const RunOptions options{.attributes = {{"sampling_ratio", ratio}}};
    EXPECT_THROW(run_kernel_one("RoiAlign", {x, rois, which}, DType::float32, {1, 1, 1, 1}, options), Error) << ratio;
  }
}

// More places than a block has, each with as many pixels as one can have: the grid names each pixel of the image.
TEST(GridSample, ReadsWholeImagesWithSixteenPixelsPerPlace) {
  constexpr int64_t kExtent = 13;
  const std::vector<float> pixels = integers(kExtent * kExtent, -50, 50, 37);
  std::vector<float> grid;
  for (int64_t row = 0; row < kExtent; ++row)
    for (int64_t column = 0; column < kExtent; ++column)
      for (const int64_t at : {column, row})  // a hundredth of a pixel aside, so that all 16 count
        grid.push_back((static_cast<float>(2 * at + 1) + 0.02F) / kExtent - 1);
  const RunOptions options{.attributes = {{"mode", std::string("cubic")}, {"padding_mode", std::string("border")}}};
  const auto y = values_of<float>(
      run_kernel_one("GridSample", {floats({1, 1, kExtent, kExtent}, pixels), floats({1, kExtent, kExtent, 2}, grid)},
                     DType::float32, {1, 1, kExtent, kExtent}, options));
  EXPECT_THAT(y, Pointwise(FloatNear(2.5), pixels));
}

TEST(GridSample, MirrorsWhatLiesFarAway) {
  const Tensor x = floats({1, 1, 1, 4}, {0, 1, 2, 3});
  const Tensor grid = floats({1, 1, 3, 2}, {0, 0, 1e30F, 0, -1e30F, 0});
  const RunOptions options{.attributes = {{"padding_mode", std::string("reflection")}}};
  const auto y = values_of<float>(run_kernel_one("GridSample", {x, grid}, DType::float32, {1, 1, 1, 3}, options));
  EXPECT_EQ(y[0], 1.5F);
  for (const float value : y) EXPECT_TRUE(value >= 0 && value <= 3) << value;
}

// Without offsets it is a convolution; integers make sums exact. The largest image takes several tiles.
TEST(DeformConv, IsAConvolutionWhereNothingMoves) {
  for (const auto& [height, width, channels, results, groups, offset_groups] :
       {std::tuple(5, 6, 4, 6, 2, 2), {3, 4, 4, 4, 1, 4}, {300, 70, 32, 2, 1, 1}, {7, 7, 2, 2, 2, 1}}) {
    const int64_t own = channels / groups, per_group = results / groups;
    const Tensor x = floats({2, channels, height, width}, integers(2 * channels * height * width, -3, 3, 5));
    const Tensor w = floats({results, own, 3, 3}, integers(results * own * 9, -2, 2, 3));
    const Tensor offset = Tensor::zeros(DType::float32, {2, offset_groups * 18, height, width});
    const Tensor bias = floats({results}, integers(results, 1, 9, 2));
    const Tensor mask = floats({2, offset_groups * 9, height, width},
                               std::vector<float>(static_cast<size_t>(2 * offset_groups * 9 * height * width), 2));
    const RunOptions options{.attributes = {{"pads", std::vector<int64_t>{1, 1, 1, 1}},
                                            {"group", int64_t{groups}},
                                            {"offset_group", int64_t{offset_groups}}},
                             .threads = 2};
    const auto y = values_of<float>(
        run_kernel_one("DeformConv", {x, w, offset, bias, mask}, DType::float32, {2, results, height, width}, options));
    const auto xs = values_of<float>(x), ws = values_of<float>(w), bs = values_of<float>(bias);
    for (int64_t n = 0; n < 2; ++n)
      for (int64_t m = 0; m < results; ++m)
        for (int64_t r = 0; r < height; ++r)
          for (int64_t c = 0; c < width; ++c) {
            float sum = bs[m];
            for (int64_t l = 0; l < own; ++l)
              for (int64_t i = 0; i < 3; ++i)
                for (int64_t j = 0; j < 3; ++j) {
                  const int64_t row = r + i - 1, column = c + j - 1;
                  if (row < 0 || row >= height || column < 0 || column >= width) continue;
                  sum += 2 * ws[((m * own + l) * 3 + i) * 3 + j] *
                         xs[((n * channels + m / per_group * own + l) * height + row) * width + column];
                }
            ASSERT_EQ(y[((n * results + m) * height + r) * width + c], sum) << m << " " << r << " " << c;
          }
  }
}

TEST(DeformConv, MovesItsSamples) {
  const Tensor x = floats({1, 1, 2, 3}, {1, 2, 3, 4, 5, 6}), w = floats({1, 1, 1, 1}, {1});
  std::vector<float> moves(12, 0);
  moves[0] = 1;         // the first sample down by one
  moves[6 + 1] = 0.5F;  // the second to the right by half
  moves[6 + 5] = 9;     // the last out of the image
  EXPECT_THAT(
      values_of<float>(run_kernel_one("DeformConv", {x, w, floats({1, 2, 2, 3}, moves)}, DType::float32, {1, 1, 2, 3})),
      ElementsAre(4, 2.5, 3, 4, 5, 0));
}

// Threads share out the places beside the axis; updates of one element keep their order.
TEST(ScatterElements, KeepsTheOrderOfUpdatesWhateverTheAxis) {
  for (const int64_t axis : {0, 1, 2}) {
    const Dims dims = {40, 30, 20};
    Dims fewer = {33, 30, 17};
    fewer[static_cast<size_t>(axis)] = 50;
    const int64_t count = fewer[0] * fewer[1] * fewer[2];
    std::vector<int64_t> at;
    for (int64_t i = 0; i < count; ++i)
      at.push_back(i * 7 % dims[static_cast<size_t>(axis)] - (i % 3 == 0 ? dims[static_cast<size_t>(axis)] : 0));
    const std::vector<float> updates = integers(count, 1, 1000, 77);
    for (const std::string reduction : {"none", "add"}) {
      const Tensor data = floats(dims, integers(40 * 30 * 20, 0, 9, 1));
      auto expected = values_of<float>(data);
      for (int64_t i = 0; i < count; ++i) {
        int64_t where[3] = {i / (fewer[1] * fewer[2]), i / fewer[2] % fewer[1], i % fewer[2]};
        where[axis] = at[i] < 0 ? at[i] + dims[static_cast<size_t>(axis)] : at[i];
        float& to = expected[(where[0] * 30 + where[1]) * 20 + where[2]];
        to = reduction == "add" ? to + updates[i] : updates[i];
      }
      const RunOptions options{.attributes = {{"axis", axis}, {"reduction", reduction}}, .threads = 2};
      EXPECT_EQ(values_of<float>(run_kernel_one("ScatterElements", {data, ints(fewer, at), floats(fewer, updates)},
                                                DType::float32, dims, options)),
                expected);
    }
  }
}

}  // namespace
}  // namespace tessera::kernels

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/run_kernel.h"
#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

const Tensor kLine = floats({1, 4}, {1, 2, 3, 5});

Attributes attributes(std::string mode, Attributes more = {}) {
  more["mode"] = std::move(mode);
  return more;
}

std::vector<float> by_size(const Tensor& x, Dims dims, const Attributes& attributes) {
  const Tensor sizes = ints({static_cast<int64_t>(dims.size())}, dims);
  return values_of<float>(run_kernel_one("Resize", {x, Tensor{}, Tensor{}, sizes}, DType::float32, dims, {attributes}));
}

std::vector<float> by_scale(const Tensor& x, std::vector<float> scales, Dims dims, const Attributes& attributes) {
  const Tensor given = floats({static_cast<int64_t>(scales.size())}, scales);
  return values_of<float>(run_kernel_one("Resize", {x, Tensor{}, given}, DType::float32, dims, {attributes}));
}

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-6f * 5) << i;
}

TEST(Resize, NearestCopiesElements) {
  EXPECT_EQ(by_size(kLine, {1, 7}, attributes("nearest")), (std::vector<float>{1, 1, 2, 2, 3, 5, 5}));
  EXPECT_EQ(by_size(kLine, {1, 7},
                    attributes("nearest", {{"nearest_mode", std::string("ceil")},
                                           {"coordinate_transformation_mode", std::string("asymmetric")}})),
            (std::vector<float>{1, 2, 3, 3, 5, 5, 5}));
}

TEST(Resize, LinearMixesNeighbours) {
  expect_near(by_scale(floats({1, 2}, {1, 2}), {1, 2}, {1, 4}, attributes("linear")), {1, 1.25f, 1.75f, 2});
  auto with = [](std::string coordinates) {
    return attributes("linear", {{"coordinate_transformation_mode", std::move(coordinates)}});
  };
  expect_near(by_size(kLine, {1, 6}, with("align_corners")), {1, 1.6f, 2.2f, 2.8f, 3.8f, 5});
  expect_near(by_size(kLine, {1, 3}, with("pytorch_half_pixel")), {1.1666667f, 2.5f, 4.6666667f});
  EXPECT_EQ(by_size(kLine, {1, 1}, with("pytorch_half_pixel")), (std::vector<float>{1}));
  expect_near(by_scale(kLine, {1, 0.7f}, {1, 2}, with("half_pixel")), {1.2142857f, 2.6428571f});
  expect_near(by_scale(kLine, {1, 0.7f}, {1, 2}, with("half_pixel_symmetric")), {1.7857143f, 3.4285715f});
}

TEST(Resize, CubicTakesFourNeighbours) {
  expect_near(by_scale(kLine, {1, 2}, {1, 8}, attributes("cubic")),
              {0.89453125f, 1.19140625f, 1.66796875f, 2.26171875f, 2.59765625f, 3.55859375f, 4.58203125f, 5.2109375f});
  expect_near(by_scale(kLine, {1, 2}, {1, 8}, attributes("cubic", {{"exclude_outside", int64_t{1}}})),
              {0.8636364f, 1.1731448f, 1.6452830f, 2.26171875f, 2.59765625f, 3.6075472f, 4.6219082f, 5.2727275f});
}

TEST(Resize, AntialiasingWidensTheKernel) {
  expect_near(by_size(kLine, {1, 3}, attributes("linear", {{"antialias", int64_t{1}}})),
              {1.2727273f, 2.5f, 4.4545455f});
  expect_near(by_size(kLine, {1, 3}, attributes("cubic", {{"antialias", int64_t{1}}})),
              {1.1550019f, 2.4385517f, 4.6075487f});
  expect_near(by_size(kLine, {1, 3}, attributes("cubic", {{"antialias", int64_t{1}}, {"exclude_outside", int64_t{1}}})),
              {1.1608977f, 2.4470461f, 4.5926208f});
}

TEST(Resize, DimensionsAreInterpolatedOneAfterAnother) {
  expect_near(by_scale(floats({2, 2}, {1, 2, 3, 4}), {2, 2}, {4, 4}, attributes("linear")),
              {1, 1.25f, 1.75f, 2, 1.5f, 1.75f, 2.25f, 2.5f, 2.5f, 2.75f, 3.25f, 3.5f, 3, 3.25f, 3.75f, 4});
  const Tensor cube = floats({1, 2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(by_size(cube, {2, 4, 2, 4}, attributes("nearest")),
            (std::vector<float>{1, 1, 2, 2, 3, 3, 4, 4, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7,
                                8, 8, 5, 5, 6, 6, 7, 7, 8, 8, 1, 1, 2, 2, 3, 3, 4, 4, 1, 1, 2, 2,
                                3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 5, 5, 6, 6, 7, 7, 8, 8}));
}

Tensor part_of_resized(const Tensor& x, const std::vector<int64_t>& place) {
  return run_kernel_one("Resize", {x, Tensor{}, Tensor{}, Tensor{}, ints({5}, place)}, DType::float32, {place[1]},
                        {.attributes = attributes("cubic"), .domain = "tessera"});
}

// Results 2 and 3 of 6 read elements 2 to 8 of 11.
TEST(Resize, PartsAreThoseOfTheWhole) {
  const Tensor whole = floats({11}, {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5});
  const std::vector<float> all = by_size(whole, {6}, attributes("cubic"));
  const Tensor some = floats({7}, {4, 1, 5, 9, 2, 6, 5});
  EXPECT_EQ(values_of<float>(part_of_resized(some, {2, 2, 6, 2, 11})), (std::vector<float>{all[2], all[3]}));
}

TEST(Resize, RefusesPlacesThatDoNotFit) {
  const Tensor some = floats({7}, {4, 1, 5, 9, 2, 6, 5});
  const auto error = [&](const std::vector<int64_t>& place) -> std::string {
    try {
      part_of_resized(some, place);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error({1, 3, 6, 2, 11}), testing::HasSubstr("read more than the elements from 2 to 8"));
  EXPECT_THAT(error({3, 2, 6, 2, 11}), testing::HasSubstr("read more than the elements from 2 to 8"));
  EXPECT_THAT(error({5, 2, 6, 2, 11}), testing::HasSubstr("its 2 results begin at 5 of 6"));
  EXPECT_THAT(error({2, 2, 6, 5, 11}), testing::HasSubstr("its 7 elements at 5 of 11"));
  EXPECT_THAT(error({2, 2, 6, -1, 11}), testing::HasSubstr("5 numbers from 0"));
}

TEST(Resize, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(by_size(kLine, {1, 6}, attributes("sinc")), Error);
  EXPECT_THROW(by_size(kLine, {1, 6},
                       attributes("linear", {{"coordinate_transformation_mode", std::string("tf_crop_and_resize")}})),
               Error);
}

}  // namespace
}  // namespace tessera::kernels

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/random_tensors.h"
#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::FloatNear;
using ::testing::IsEmpty;
using ::testing::Pointwise;

/// Applies `row(values)` to each row of a float32 tensor along `axis`, in double.
template <typename Row>
std::vector<float> along(const Tensor& x, int64_t axis, Row row) {
  const std::span<const int64_t> dims = x.dims;
  const int64_t outer = count_of(dims.first(axis)), length = dims[axis], inner = count_of(dims.subspan(axis + 1));
  std::vector<float> y(x.count());
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      std::vector<double> values(length);
      for (int64_t l = 0; l < length; ++l) values[l] = x.as<float>()[(o * length + l) * inner + i];
      row(values);
      for (int64_t l = 0; l < length; ++l) y[(o * length + l) * inner + i] = static_cast<float>(values[l]);
    }
  return y;
}

void softmax(std::vector<double>& row) {
  const double most = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (double& value : row) sum += value = std::exp(value - most);
  for (double& value : row) value /= sum;
}

void log_softmax(std::vector<double>& row) {
  const double most = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (double value : row) sum += std::exp(value - most);
  for (double& value : row) value -= most + std::log(sum);
}

/// (x - mean) / sqrt(variance + epsilon)
void normalize(std::vector<double>& row, double epsilon) {
  double mean = 0, variance = 0;
  for (double value : row) mean += value / row.size();
  for (double value : row) variance += (value - mean) * (value - mean) / row.size();
  for (double& value : row) value = (value - mean) / std::sqrt(variance + epsilon);
}

Attributes axis_of(int64_t axis) {
  return {{"axis", axis}};
}

TEST(Softmax, SumsToOneAlongAnyAxis) {
  RandomTensors random(31);
  for (const Dims& dims : {Dims{5}, Dims{3, 100}, Dims{2, 37, 19}, Dims{2, 5, 3, 33}})
    for (int64_t axis = 0; axis < static_cast<int64_t>(dims.size()); ++axis) {
      const Tensor x = random.normal_floats(dims, 3);
      EXPECT_THAT(values_of<float>(run_kernel_one("Softmax", {x}, DType::float32, dims, {.attributes = axis_of(axis)})),
                  Pointwise(FloatNear(1e-6f), along(x, axis, softmax)));
      EXPECT_THAT(
          values_of<float>(run_kernel_one("LogSoftmax", {x}, DType::float32, dims, {.attributes = axis_of(axis)})),
          Pointwise(FloatNear(4e-6f), along(x, axis, log_softmax)));
    }
}

TEST(Softmax, RunsInPlaceOnDoublesAndSixteenBits) {
  RandomTensors random(32);
  const Dims dims{4, 50};
  const Tensor x = random.normal_floats(dims, 2);
  const auto expected = along(x, 1, softmax);
  const RunOptions in_place{.in_place = 0};
  EXPECT_THAT(values_of<float>(run_kernel_one("Softmax", {x}, DType::float32, dims, in_place)),
              Pointwise(FloatNear(1e-6f), expected));
  const Tensor doubles = run_kernel_one("Softmax", {converted<double>(DType::float64, x)}, DType::float64, dims);
  const auto as_doubles = values_of<double>(doubles);
  EXPECT_THAT(std::vector<float>(as_doubles.begin(), as_doubles.end()), Pointwise(FloatEq(), expected));
  for (DType dtype : {DType::bfloat16, DType::float16}) {
    const Tensor narrow = narrowed(dtype, dims, values_of<float>(x));
    const Tensor wide = floats(dims, widened(narrow));
    const Tensor result = run_kernel_one("Softmax", {wide}, DType::float32, dims);
    EXPECT_EQ(widened(run_kernel_one("Softmax", {narrow}, dtype, dims, in_place)),
              widened(narrowed(dtype, dims, values_of<float>(result))));
  }
}

TEST(Softmax, GivesARowTheSameBitsWhereverItStands) {
  RandomTensors random(33);
  const auto row = random.normal(77);
  auto many = random.normal(9 * 77);
  std::copy(row.begin(), row.end(), many.begin() + 5 * 77);
  const auto alone = values_of<float>(run_kernel_one("Softmax", {floats({1, 77}, row)}, DType::float32, {1, 77}));
  const auto among =
      values_of<float>(run_kernel_one("Softmax", {floats({9, 77}, many)}, DType::float32, {9, 77}, {.threads = 2}));
  EXPECT_EQ(alone, std::vector<float>(among.begin() + 5 * 77, among.begin() + 6 * 77));
}

TEST(Softmax, MasksByInfinityAndTakesEmptyRows) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(values_of<float>(run_kernel_one("Softmax", {floats({3}, {1, -infinity, 1})}, DType::float32, {3})),
              ElementsAre(0.5, 0, 0.5));
  EXPECT_THAT(values_of<float>(run_kernel_one("Softmax", {floats({2, 0}, {})}, DType::float32, {2, 0})), IsEmpty());
}

TEST(Hardmax, PicksTheFirstOfTheLargest) {
  EXPECT_THAT(
      values_of<float>(run_kernel_one("Hardmax", {floats({2, 3}, {1, 5, 5, 0, -1, -2})}, DType::float32, {2, 3})),
      ElementsAre(0, 1, 0, 1, 0, 0));
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(
      values_of<float>(run_kernel_one("Hardmax", {floats({2, 3}, {1, nan, nan, nan, 9, 2})}, DType::float32, {2, 3})),
      ElementsAre(0, 1, 0, 1, 0, 0));
}

TEST(LpNormalization, DividesByTheNorm) {
  const Tensor x = floats({2, 2}, {3, -4, 0, 0});
  EXPECT_THAT(values_of<float>(run_kernel_one("LpNormalization", {x}, DType::float32, {2, 2})),
              ElementsAre(FloatEq(0.6), FloatEq(-0.8), 0, 0));
  EXPECT_THAT(values_of<float>(run_kernel_one("LpNormalization", {x}, DType::float32, {2, 2},
                                              {.attributes = {{"p", int64_t{1}}, {"axis", int64_t{0}}}})),
              ElementsAre(1, -1, 0, 0));
}

TEST(LayerNormalization, NormalizesFromAnAxisAndTellsItsMoments) {
  RandomTensors random(34);
  const Dims dims{3, 4, 25};
  const Tensor x = random.normal_floats(dims, 5);
  for (int64_t axis : {1, 2}) {
    const Dims row(dims.begin() + axis, dims.end());
    const Tensor scale = random.normal_floats(row), bias = random.normal_floats(row);
    const Tensor flat = floats({x.count() / count_of(row), count_of(row)}, values_of<float>(x));
    auto expected = along(flat, 1, [](auto& values) { normalize(values, 1e-5); });
    for (size_t i = 0; i < expected.size(); ++i)
      expected[i] = expected[i] * scale.as<float>()[i % count_of(row)] + bias.as<float>()[i % count_of(row)];
    Dims stash(dims.begin(), dims.begin() + axis);
    stash.resize(3, 1);
    const auto results = run_kernel("LayerNormalization", {x, scale, bias},
                                    {{DType::float32, dims}, {DType::float32, stash}, {DType::float32, stash}},
                                    {.attributes = axis_of(axis)});
    EXPECT_THAT(values_of<float>(results[0]), Pointwise(FloatNear(4e-6f), expected));
    const int64_t length = count_of(row);
    for (int64_t r = 0; r < x.count() / length; ++r) {
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < length; ++i) mean += x.as<float>()[r * length + i] / double(length);
      for (int64_t i = 0; i < length; ++i) variance += std::pow(x.as<float>()[r * length + i] - mean, 2) / length;
      EXPECT_NEAR(results[1].as<float>()[r], mean, 2e-6);
      EXPECT_NEAR(results[2].as<float>()[r], 1 / std::sqrt(variance + 1e-5), 1e-6);
    }
  }
}

TEST(LayerNormalization, RepeatsAScaleAndDoesWithoutABias) {
  const Tensor x = floats({1, 2, 2}, {1, 3, 5, 7});
  const Tensor y = run_kernel_one("LayerNormalization", {x, floats({2, 1}, {1, 10})}, DType::float32, {1, 2, 2},
                                  {.attributes = {{"axis", int64_t{1}}, {"epsilon", 0.0f}}});
  const float unit = 1 / std::sqrt(5.0f);
  EXPECT_THAT(values_of<float>(y),
              ElementsAre(FloatEq(-3 * unit), FloatEq(-unit), FloatEq(10 * unit), FloatEq(30 * unit)));
}

TEST(LayerNormalization, RoundsSixteenBitResultsOnce) {
  RandomTensors random(35);
  const Dims dims{6, 40};
  for (DType dtype : {DType::bfloat16, DType::float16}) {
    const Tensor x = narrowed(dtype, dims, random.normal(240)), scale = narrowed(dtype, {40}, random.normal(40));
    const Tensor wide = run_kernel_one("LayerNormalization", {floats(dims, widened(x)), floats({40}, widened(scale))},
                                       DType::float32, dims);
    EXPECT_EQ(widened(run_kernel_one("LayerNormalization", {x, scale}, dtype, dims)),
              widened(narrowed(dtype, dims, values_of<float>(wide))));
  }
}

TEST(LayerNormalization, NamesAScaleThatDoesNotFit) {
  EXPECT_THAT(
      [] {
        run_kernel_one("LayerNormalization", {floats({1, 2}, {1, 2}), floats({3}, {1, 2, 3})}, DType::float32, {1, 2});
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("does not broadcast")));
}

TEST(RMSNormalization, DividesByTheRootOfTheMeanSquare) {
  RandomTensors random(36);
  const Dims dims{5, 70};
  const Tensor x = random.normal_floats(dims, 2), scale = random.normal_floats({70});
  auto expected = along(x, 1, [](auto& values) {
    double squares = 0;
    for (double value : values) squares += value * value / values.size();
    for (double& value : values) value /= std::sqrt(squares + 1e-6);
  });
  for (size_t i = 0; i < expected.size(); ++i) expected[i] *= scale.as<float>()[i % 70];
  const Attributes attributes{{"epsilon", 1e-6f}};
  EXPECT_THAT(values_of<float>(
                  run_kernel_one("RMSNormalization", {x, scale}, DType::float32, dims, {.attributes = attributes})),
              Pointwise(FloatNear(4e-6f), expected));
}

TEST(GroupNormalization, NormalizesGroupsAndScalesChannels) {
  RandomTensors random(37);
  const Dims dims{2, 6, 3, 5};
  const Tensor x = random.normal_floats(dims, 3), scale = random.normal_floats({6}), bias = random.normal_floats({6});
  for (int64_t groups : {2, 6}) {
    const Tensor flat = floats({2 * groups, 90 / groups}, values_of<float>(x));
    auto expected = along(flat, 1, [](auto& values) { normalize(values, 1e-5); });
    for (size_t i = 0; i < expected.size(); ++i)
      expected[i] = expected[i] * scale.as<float>()[i / 15 % 6] + bias.as<float>()[i / 15 % 6];
    EXPECT_THAT(values_of<float>(run_kernel_one("GroupNormalization", {x, scale, bias}, DType::float32, dims,
                                                {.attributes = {{"num_groups", groups}}})),
                Pointwise(FloatNear(4e-6f), expected));
    if (groups == 6) {
      EXPECT_THAT(values_of<float>(run_kernel_one("InstanceNormalization", {x, scale, bias}, DType::float32, dims)),
                  Pointwise(FloatNear(4e-6f), expected));
    }
  }
}

TEST(MeanVarianceNormalization, NormalizesOverAnyAxes) {
  RandomTensors random(38);
  const Tensor x = random.normal_floats({3, 2, 2, 4}, 2);
  const Tensor y = run_kernel_one("MeanVarianceNormalization", {x}, DType::float32, {3, 2, 2, 4});
  for (int64_t channel = 0; channel < 2; ++channel) {
    std::vector<double> values, expected;
    for (int64_t i = 0; i < x.count(); ++i)
      if (i / 8 % 2 == channel) values.push_back(x.as<float>()[i]);
    expected = values;
    normalize(expected, 0);
    size_t at = 0;
    for (int64_t i = 0; i < x.count(); ++i)
      if (i / 8 % 2 == channel) {
        EXPECT_NEAR(y.as<float>()[i], expected[at++], 4e-6);
      }
  }
}

}  // namespace
}  // namespace tessera::kernels

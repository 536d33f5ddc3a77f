#include "tessera/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tessera/base/float16.h"

namespace tessera {
namespace {

Tensor floats(std::vector<float> values) {
  Dims dims{static_cast<int64_t>(values.size())};
  return Tensor::of(DType::float32, dims, values);
}

Tensor bfloats(const std::vector<float>& values) {
  std::vector<BFloat16> narrow(values.begin(), values.end());
  return Tensor::of(DType::bfloat16, {static_cast<int64_t>(values.size())}, narrow);
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Compare, measures_against_the_largest_expected_magnitude) {
  Difference difference = compare("y", floats({100, 0}), floats({100, 0.5f}));
  EXPECT_DOUBLE_EQ(difference.max_abs, 0.5);
  EXPECT_DOUBLE_EQ(difference.max_rel, 0.005);
  EXPECT_FALSE(difference.pass);
}

TEST(Compare, lets_float32_differ_by_2e_minus_5) {
  EXPECT_TRUE(compare("y", floats({1000}), floats({1000.019f})).pass);
  EXPECT_FALSE(compare("y", floats({1000}), floats({1000.021f})).pass);
}

TEST(Compare, takes_the_tolerance_that_is_given) {
  EXPECT_TRUE(compare("y", floats({0}), floats({0.5f}), {0.5, std::nullopt}).pass);
  EXPECT_FALSE(compare("y", floats({0}), floats({0.5f}), {std::nullopt, 1.0}).pass);
  EXPECT_TRUE(compare("y", floats({1}), floats({1.5f}), {std::nullopt, 0.5}).pass);
  EXPECT_FALSE(compare("y", floats({1000}), floats({1000.001f}), {std::nullopt, 0.0}).pass);
}

TEST(Compare, wants_nan_and_infinity_where_they_are_expected) {
  EXPECT_TRUE(compare("y", floats({kNaN, kInfinity, 1}), floats({kNaN, kInfinity, 1})).pass);
  EXPECT_FALSE(compare("y", floats({kNaN, 1}), floats({0, 1})).pass);
  EXPECT_FALSE(compare("y", floats({0, 1}), floats({kNaN, 1})).pass);
  EXPECT_FALSE(compare("y", floats({kInfinity, 1}), floats({-kInfinity, 1})).pass);
  EXPECT_FALSE(compare("y", floats({kInfinity, 1}), floats({1, 1}), {1e30, 1e30}).pass);
}

TEST(Compare, wants_integers_exact) {
  Tensor expected = Tensor::of<int64_t>(DType::int64, {2}, {1000000, 3});
  EXPECT_TRUE(compare("y", expected, Tensor::of<int64_t>(DType::int64, {2}, {1000000, 3}), {}).pass);
  Difference difference = compare("y", expected, Tensor::of<int64_t>(DType::int64, {2}, {1000001, 3}), {5.0, 5.0});
  EXPECT_FALSE(difference.pass);
  EXPECT_DOUBLE_EQ(difference.max_abs, 1);
}

TEST(Compare, takes_float32_from_files_for_bfloat16) {
  EXPECT_TRUE(compare("y", floats({1, 2}), bfloats({1, 2})).pass);
  EXPECT_TRUE(compare("y", floats({100}), bfloats({101})).pass);
  EXPECT_FALSE(compare("y", floats({100}), bfloats({103})).pass);
}

TEST(Compare, says_why_tensors_cannot_be_compared) {
  Difference shape = compare("y", floats({1, 2}), floats({1}));
  EXPECT_FALSE(shape.pass);
  EXPECT_EQ(shape.problem, "the shape [2] was expected, [1] came");
  Difference dtype = compare("y", floats({1}), Tensor::of<int64_t>(DType::int64, {1}, {1}));
  EXPECT_FALSE(dtype.pass);
  EXPECT_EQ(dtype.problem, "float32 was expected, int64 came");
  auto missing = compare(Tensors{{"y", floats({1})}}, Tensors{});
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_FALSE(missing[0].pass);
  auto extra = compare(Tensors{}, Tensors{{"y", floats({1})}});
  ASSERT_EQ(extra.size(), 1u);
  EXPECT_FALSE(extra[0].pass);
  EXPECT_EQ(extra[0].problem, "nothing is expected of this output");
}

TEST(Compare, passes_what_is_empty) {
  EXPECT_TRUE(compare("y", floats({}), floats({})).pass);
}

}  // namespace
}  // namespace tessera

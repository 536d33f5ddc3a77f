#include "tessera/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "api/in_parts.h"
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

TEST(Compare, spares_what_is_expected_to_be_nan_if_asked) {
  EXPECT_FALSE(compare("y", floats({1, kNaN}), floats({1, 0})).pass);
  Difference difference = compare("y", floats({1, kNaN}), floats({1, 0}), {.spares_nan = true});
  EXPECT_TRUE(difference.pass);
  EXPECT_EQ(difference.spared, 1);
  EXPECT_EQ(difference.misplaced, 0);
  EXPECT_FALSE(compare("y", floats({1, kNaN}), floats({2, 0}), {.spares_nan = true}).pass);
  EXPECT_FALSE(compare("y", floats({1, 0}), floats({1, kNaN}), {.spares_nan = true}).pass) << "NaN came";
  EXPECT_FALSE(compare("y", floats({kNaN}), floats({0}), {.spares_nan = true}).pass) << "nothing was compared";
}

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

TEST(Compare, says_how_many_are_not_finite_and_where_they_are_not_expected) {
  Difference same = compare("y", floats({kNaN, -kInfinity, 1}), floats({kNaN, -kInfinity, 1}));
  EXPECT_TRUE(same.pass);
  EXPECT_EQ(same.elements, 3);
  EXPECT_EQ(same.not_finite, 2);
  EXPECT_EQ(same.misplaced, 0);
  Tensor expected = Tensor::of<float>(DType::float32, {2, 2}, {1, kInfinity, kInfinity, kNaN});
  Tensor actual = Tensor::of<float>(DType::float32, {2, 2}, {1, kInfinity, kNaN, 4});
  for (const Tolerance& tolerance : {Tolerance{}, Tolerance{kInfinity, kInfinity}}) {
    Difference moved = compare("y", expected, actual, tolerance);
    EXPECT_FALSE(moved.pass);
    EXPECT_EQ(moved.not_finite, 2);
    EXPECT_EQ(moved.misplaced, 2);
    EXPECT_EQ(moved.first_misplaced, "[1, 0]: expected inf, got nan");
  }
}

// One device is 0.03 away from the exact answer; the mesh may be three times that, but no more than a tenth.
TEST(Compare, judges_a_narrower_type_by_what_one_device_loses) {
  const Tensors exact{{"y", floats({1, 0})}}, one{{"y", floats({1, 0.03F})}};
  auto judged = [&](float first, float second) {
    const Tensors many{{"y", floats({first, second})}};
    std::vector<Difference> differences = compare(one, many, {0.0, 0.02});
    judge_by_own_loss(differences, exact, one, many);
    return differences[0];
  };
  EXPECT_TRUE(judged(1, 0.08F).pass);
  EXPECT_NEAR(judged(1, 0.08F).own_loss, 0.03, 1e-6);
  EXPECT_NEAR(judged(1, 0.08F).loss, 0.08, 1e-6);
  EXPECT_FALSE(judged(1, -0.095F).pass) << "more than three times 0.03";
  EXPECT_FALSE(judged(kNaN, 0).pass);
  EXPECT_EQ(judged(1, 0.04F).own_loss, 0) << "within the tolerance: nothing to judge";
  const Tensors lossy{{"y", floats({1, 0.5F})}}, close{{"y", floats({1, 0.4F})}};
  std::vector<Difference> differences = compare(lossy, close, {0.0, 0.02});
  judge_by_own_loss(differences, exact, lossy, close);
  EXPECT_FALSE(differences[0].pass) << "more than a tenth";
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
  EXPECT_EQ(shape.problem, "expected the shape [2], got [1]");
  Difference dtype = compare("y", floats({1}), Tensor::of<int64_t>(DType::int64, {1}, {1}));
  EXPECT_FALSE(dtype.pass);
  EXPECT_EQ(dtype.problem, "expected float32, got int64");
  auto missing = compare(Tensors{{"y", floats({1})}}, Tensors{});
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_FALSE(missing[0].pass);
  auto extra = compare(Tensors{}, Tensors{{"y", floats({1})}});
  ASSERT_EQ(extra.size(), 1u);
  EXPECT_FALSE(extra[0].pass);
  EXPECT_EQ(extra[0].problem, "there is no expected array for this output");
}

TEST(Compare, passes_what_is_empty) {
  EXPECT_TRUE(compare("y", floats({}), floats({})).pass);
}

// A Cast at the end makes an output float32, but not as exact as what is computed in float32.
TEST(Compare, takes_the_tolerance_of_what_a_tensor_is_computed_in) {
  const test::TemporaryFolder folder;
  const auto types_of = [&](const std::string& nodes) {
    return computed_in(
        test::in_parts::model_of(folder, "g (float[4] x, float16[4] h, int64 n) => (float[4] y) {" + nodes + "}"));
  };
  using Types = std::map<std::string, DType>;
  EXPECT_EQ(types_of("y = Exp (x)"), Types{});
  EXPECT_EQ(types_of("w = Cast <to = 1> (h) y = Exp (w)"), Types{}) << "an input is as exact as it is given";
  EXPECT_EQ(types_of("a = Cast <to = 10> (x) b = Exp (a) y = Cast <to = 1> (b)"), (Types{{"y", DType::float16}}));
  EXPECT_EQ(types_of("t = Identity (h) s = Add (x, x) w = Cast <to = 1> (t) y = Mul (w, s)"), Types{}) << "only moved";
  EXPECT_EQ(types_of("z = Sub (x, x) c = Greater (x, z) m = Cast <to = 10> (c) w = Cast <to = 1> (m) y = Mul (w, x)"),
            Types{})
      << "a mask";
  EXPECT_EQ(
      types_of("a = Cast <to = 10> (x) b = NonZero (a) s = Shape (b) w = Cast <to = 1> (a) y = Expand (w, s)").at("y"),
      DType::float16)
      << "in parts";
  EXPECT_EQ(types_of("a = Cast <to = 16> (x) b = Exp (a) w = Cast <to = 1> (b) z = Exp (x) y = Add (w, z)"),
            (Types{{"w", DType::bfloat16}, {"y", DType::bfloat16}}));
  const Types looped = types_of(R"(
      zero = Sub (x, x)
      y, other = Loop <body = body (int64 i, bool on, float[4] sum, float[4] next) => (bool go, float[4] after, float[4] made) {
        go = Identity (on)
        after = Add (sum, next)
        a = Cast <to = 10> (x)
        b = Exp (a)
        made = Cast <to = 1> (b)
      }> (n, "", zero, zero))");
  EXPECT_EQ(looped.at("y"), DType::float16) << "by way of the iteration before";
  const Tolerance tolerance{.types = {{"y", DType::float16}}};
  EXPECT_TRUE(compare("y", floats({1000}), floats({1002}), tolerance).pass);
  EXPECT_FALSE(compare("y", floats({1000}), floats({1003}), tolerance).pass);
  EXPECT_FALSE(compare("z", floats({1000}), floats({1002}), tolerance).pass);
}

}  // namespace
}  // namespace tessera

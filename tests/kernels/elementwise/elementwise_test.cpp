#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "kernels/run_kernel.h"
#include "tessera/base/error.h"
#include "tessera/base/float16.h"

namespace tessera::kernels {
namespace {

using testing::ElementsAre;

const float not_a_number = std::nanf("");

std::vector<float> run_floats(const std::string& op, const std::vector<float>& x, const Attributes& attributes = {}) {
  const Dims dims = {static_cast<int64_t>(x.size())};
  return values_of<float>(run_kernel_one(op, {floats(dims, x)}, DType::float32, dims, {.attributes = attributes}));
}

/// The distance in units in the last place of the float32 nearest to `exact`.
double ulp_error(float value, double exact) {
  const float nearest = static_cast<float>(exact);
  if (std::isnan(exact)) return std::isnan(value) ? 0 : infinity;
  if (std::isinf(nearest) || std::isinf(value)) return nearest == value ? 0 : infinity;
  const float magnitude = std::fabs(nearest);
  const double ulp = std::max<double>(std::nextafter(magnitude, infinity) - magnitude, 0x1p-149);
  return std::fabs(value - exact) / ulp;
}

struct Function {
  std::string op;
  double (*exact)(double);
  float low, high;
  double ulps;
};

void PrintTo(const Function& function, std::ostream* out) {
  *out << function.op;
}

class Accuracy : public testing::TestWithParam<Function> {};

TEST_P(Accuracy, is_within_the_stated_ulps_of_double) {
  const auto& [op, exact, low, high, ulps] = GetParam();
  std::vector<float> x;
  constexpr int samples = 400000;
  for (int i = 0; i <= samples; ++i) x.push_back(low + (high - low) * (static_cast<float>(i) / samples));
  for (float tiny = 1.0f; tiny > 0; tiny /= 3) {
    if (low < 0) x.push_back(-tiny);
    x.push_back(tiny);
  }
  const std::vector<float> y = run_floats(op, x);
  double worst = 0;
  float where = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = ulp_error(y[i], exact(x[i]));
    if (error > worst) worst = error, where = x[i];
  }
  EXPECT_LE(worst, ulps) << "at " << where;
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double softplus(double x) {
  return std::log1p(std::exp(x));
}
double mish(double x) {
  return x * std::tanh(std::log1p(std::exp(x)));
}
double swish(double x) {
  return x * sigmoid(x);
}

INSTANTIATE_TEST_SUITE_P(Elementwise, Accuracy,
                         testing::Values(Function{"Exp", std::exp, -105, 90, 2}, Function{"Exp", std::exp, -1, 1, 1},
                                         Function{"Log", std::log, 0, 10, 2}, Function{"Log", std::log, 0, 3e38f, 2},
                                         Function{"Tanh", std::tanh, -10, 10, 2}, Function{"Tanh", std::tanh, -1, 1, 2},
                                         Function{"Erf", std::erf, -5, 5, 2}, Function{"Sin", std::sin, -10, 10, 1},
                                         Function{"Sin", std::sin, -3e6f, 3e6f, 1},
                                         Function{"Cos", std::cos, -10, 10, 1},
                                         Function{"Cos", std::cos, -3e6f, 3e6f, 1},
                                         Function{"Sigmoid", sigmoid, -100, 100, 3},
                                         Function{"Softplus", softplus, -80, 80, 3}, Function{"Mish", mish, -80, 80, 5},
                                         Function{"Swish", swish, -80, 80, 4}, Function{"Atan", std::atan, -9, 9, 1},
                                         Function{"Asinh", std::asinh, -9, 9, 1},
                                         Function{"Sinh", std::sinh, -80, 80, 1}, Function{"Tan", std::tan, -9, 9, 1}));

TEST(Elementwise, transcendental_functions_know_the_special_values) {
  const std::vector<float> x = {0.0f, -0.0f, infinity, -infinity, not_a_number};
  using testing::NanSensitiveFloatEq;
  auto same = [&](const std::string& op, std::vector<float> expected) {
    const std::vector<float> y = run_floats(op, x);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_THAT(y[i], NanSensitiveFloatEq(expected[i])) << op << " of " << x[i];
      EXPECT_TRUE(std::isnan(expected[i]) || std::signbit(y[i]) == std::signbit(expected[i])) << op << " of " << x[i];
    }
  };
  const float nan = not_a_number;
  same("Exp", {1, 1, infinity, 0, nan});
  same("Log", {-infinity, -infinity, infinity, nan, nan});
  same("Tanh", {0, -0.0f, 1, -1, nan});
  same("Erf", {0, -0.0f, 1, -1, nan});
  same("Sigmoid", {0.5, 0.5, 1, 0, nan});
  same("Sin", {0, -0.0f, nan, nan, nan});
  same("Cos", {1, 1, nan, nan, nan});
  same("Relu", {0, -0.0f, infinity, 0, nan});
  same("Sqrt", {0, -0.0f, infinity, nan, nan});
  EXPECT_TRUE(std::isnan(run_floats("Log", {-1.0f})[0]));
}

/// Bit patterns of any 1-, 2- or 4-byte tensor.
std::vector<uint8_t> bytes_of(const Tensor& tensor) {
  return values_of<uint8_t>(tensor);
}

TEST(Elementwise, an_element_has_the_same_bits_at_any_position) {
  constexpr uint32_t seed = 7;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  constexpr int64_t n = 101;
  std::vector<float> x(n);
  for (float& element : x) element = normal(random);
  for (const std::string op : {"Exp", "Log", "Tanh", "Erf", "Sin", "Cos", "Sigmoid", "Gelu", "Mish", "Softplus", "Elu",
                               "Selu", "HardSwish", "Swish", "Softsign", "Reciprocal", "Sqrt", "Atan", "Round"}) {
    for (DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
      auto tensor = [&](std::vector<float> values) {
        const Dims dims = {static_cast<int64_t>(values.size())};
        return dtype == DType::float32 ? floats(dims, values) : narrowed(dtype, dims, values);
      };
      const std::vector<uint8_t> whole = bytes_of(run_kernel_one(op, {tensor(x)}, dtype, {n}));
      const size_t size = whole.size() / n;
      for (int64_t begin = 0; begin < n; begin += 13)
        for (int64_t length : {1, 5, 13}) {
          const int64_t end = std::min(n, begin + length);
          const Tensor part = tensor({x.begin() + begin, x.begin() + end});
          const std::vector<uint8_t> alone = bytes_of(run_kernel_one(op, {part}, dtype, {end - begin}));
          ASSERT_THAT(alone, testing::ElementsAreArray(whole.begin() + begin * size, whole.begin() + end * size))
              << op << " " << name_of(dtype) << " seed " << seed;
        }
    }
  }
}

TEST(Elementwise, activations_follow_their_formulas) {
  const std::vector<float> x = {-4, -1, -0.25, 0, 0.25, 1, 4};
  auto expect = [&](const std::string& op, const Attributes& attributes, auto formula) {
    const std::vector<float> y = run_floats(op, x, attributes);
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = formula(static_cast<double>(x[i]));
      EXPECT_NEAR(y[i], exact, 3e-7 * std::max(1.0, std::fabs(exact))) << op << " of " << x[i];
    }
  };
  expect("LeakyRelu", {{"alpha", 0.1f}}, [](double v) { return v < 0 ? 0.1f * v : v; });
  expect("LeakyRelu", {}, [](double v) { return v < 0 ? 0.01f * v : v; });
  expect("ThresholdedRelu", {{"alpha", 0.5f}}, [](double v) { return v > 0.5 ? v : 0; });
  expect("Shrink", {{"lambd", 0.5f}, {"bias", 0.25f}}, [](double v) {
    return v > 0.5 ? v - 0.25 : v < -0.5 ? v + 0.25 : 0;
  });
  expect("Elu", {{"alpha", 2.0f}}, [](double v) { return v < 0 ? 2 * std::expm1(v) : v; });
  expect("Selu", {}, [](double v) { return 1.0507010221481323 * (v > 0 ? v : 1.6732631921768188 * std::expm1(v)); });
  expect("Celu", {{"alpha", 2.0f}}, [](double v) { return v < 0 ? 2 * std::expm1(v / 2) : v; });
  expect("HardSigmoid", {}, [](double v) { return std::clamp(0.2 * v + 0.5, 0.0, 1.0); });
  expect("HardSwish", {}, [](double v) { return v * std::clamp(v / 6 + 0.5, 0.0, 1.0); });
  expect("Swish", {{"alpha", 1.702f}}, [](double v) { return v / (1 + std::exp(-1.702f * v)); });
  expect("Softsign", {}, [](double v) { return v / (1 + std::fabs(v)); });
  expect("Gelu", {}, [](double v) { return 0.5 * v * (1 + std::erf(v * M_SQRT1_2)); });
  expect("Gelu", {{"approximate", std::string("tanh")}},
         [](double v) { return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))); });
}

TEST(Elementwise, rounding_operators_and_signs) {
  const std::vector<float> x = {-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.7};
  EXPECT_THAT(run_floats("Round", x), ElementsAre(-2, -2, -0.0f, 0, 2, 2, 4));
  EXPECT_THAT(run_floats("Floor", x), ElementsAre(-3, -2, -1, 0, 1, 2, 3));
  EXPECT_THAT(run_floats("Ceil", x), ElementsAre(-2, -1, -0.0f, 1, 2, 3, 4));
  EXPECT_THAT(run_floats("Sign", x), ElementsAre(-1, -1, -1, 1, 1, 1, 1));
  const Tensor least = Tensor::of<int8_t>(DType::int8, {3}, {-128, -3, 4});
  EXPECT_THAT(values_of<int8_t>(run_kernel_one("Abs", {least}, DType::int8, {3})), ElementsAre(-128, 3, 4));
  EXPECT_THAT(values_of<int8_t>(run_kernel_one("Neg", {least}, DType::int8, {3})), ElementsAre(-128, 3, -4));
}

TEST(Elementwise, predicates_see_infinities_and_nans) {
  const Tensor x = floats({4}, {infinity, -infinity, not_a_number, 1});
  auto run = [&](const std::string& op, const Attributes& attributes) {
    return values_of<uint8_t>(run_kernel_one(op, {x}, DType::boolean, {4}, {.attributes = attributes}));
  };
  EXPECT_THAT(run("IsNaN", {}), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(run("IsInf", {}), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(run("IsInf", {{"detect_negative", int64_t{0}}}), ElementsAre(1, 0, 0, 0));
}

/// A naive broadcast: the operand's element for a result's flat index.
size_t source_of(size_t flat, const Dims& result, const Dims& operand) {
  size_t offset = 0, stride = 1;
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t extent = result[result.size() - 1 - i];
    const size_t index = flat % extent;
    flat /= extent;
    if (i >= operand.size()) continue;
    const int64_t own = operand[operand.size() - 1 - i];
    offset += own == 1 ? 0 : index * stride;
    stride *= own;
  }
  return offset;
}

TEST(Elementwise, binary_operators_broadcast_as_numpy_does) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 300; ++trial) {
    Dims result(random() % 5);
    for (int64_t& extent : result) extent = random() % 12 == 0 ? 0 : 1 + random() % 5;
    auto operand_of = [&] {
      Dims dims(result.begin() + random() % (result.size() + 1), result.end());
      for (int64_t& extent : dims)
        if (random() % 3 == 0) extent = 1;
      return dims;
    };
    Dims a_dims = result, b_dims = operand_of();
    if (random() % 2) std::swap(a_dims, b_dims);
    std::vector<int64_t> a(count_of(a_dims)), b(count_of(b_dims));
    for (int64_t& element : a) element = static_cast<int64_t>(random() % 100) - 50;
    for (int64_t& element : b) element = static_cast<int64_t>(random() % 100) - 50;
    const Tensor sum = run_kernel_one("Sub", {ints(a_dims, a), ints(b_dims, b)}, DType::int64, result);
    std::vector<float> af(a.begin(), a.end()), bf(b.begin(), b.end());
    const Tensor product = run_kernel_one(
        "Mul", {narrowed(DType::bfloat16, a_dims, af), narrowed(DType::bfloat16, b_dims, bf)}, DType::bfloat16, result);
    const Tensor less = run_kernel_one("Less", {floats(a_dims, af), floats(b_dims, bf)}, DType::boolean, result);
    for (int64_t i = 0; i < count_of(result); ++i) {
      const size_t from_a = source_of(i, result, a_dims), from_b = source_of(i, result, b_dims);
      ASSERT_EQ(sum.as<int64_t>()[i], a[from_a] - b[from_b]);
      ASSERT_EQ(product.as<uint16_t>()[i], BFloat16(af[from_a] * bf[from_b]).bits);
      ASSERT_EQ(less.as<uint8_t>()[i], af[from_a] < bf[from_b]);
    }
  }
}

TEST(Elementwise, a_team_of_threads_gives_the_same_bits) {
  constexpr int64_t rows = 300, columns = 257;
  std::vector<float> a(rows * columns), b(columns);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 1013) * 0.37f;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i) - 100.5f;
  const std::vector<Tensor> in = {floats({rows, columns}, a), floats({columns}, b)};
  const Tensor one = run_kernel_one("Div", in, DType::float32, {rows, columns});
  const Tensor three = run_kernel_one("Div", in, DType::float32, {rows, columns}, {.threads = 3});
  EXPECT_EQ(bytes_of(one), bytes_of(three));
  EXPECT_EQ(one.as<float>()[3 * columns + 5], a[3 * columns + 5] / b[5]);
}

TEST(Elementwise, a_result_may_take_over_either_operand) {
  const std::vector<Tensor> in = {floats({2, 3}, {1, 2, 3, 4, 5, 6}), floats({2, 3}, {10, 20, 30, 40, 50, 60})};
  for (int operand : {0, 1})
    EXPECT_THAT(values_of<float>(run_kernel_one("Sub", in, DType::float32, {2, 3}, {.in_place = operand})),
                ElementsAre(-9, -18, -27, -36, -45, -54));
  EXPECT_THAT(values_of<float>(run_kernel_one("Sin", {floats({2}, {0, 1e9f})}, DType::float32, {2}, {.in_place = 0})),
              ElementsAre(0, static_cast<float>(std::sin(1e9))));
}

TEST(Elementwise, integer_division_and_remainders) {
  const Tensor a = Tensor::of<int32_t>(DType::int32, {6}, {7, -7, 7, -7, 5, INT32_MIN});
  const Tensor b = Tensor::of<int32_t>(DType::int32, {6}, {3, 3, -3, -3, 0, -1});
  auto run = [&](const std::string& op, const Attributes& attributes) {
    return values_of<int32_t>(run_kernel_one(op, {a, b}, DType::int32, {6}, {.attributes = attributes}));
  };
  EXPECT_THAT(run("Div", {}), ElementsAre(2, -2, -2, 2, 0, INT32_MIN));
  EXPECT_THAT(run("Mod", {}), ElementsAre(1, 2, -2, -1, 0, 0));
  EXPECT_THAT(run("Mod", {{"fmod", int64_t{1}}}), ElementsAre(1, -1, 1, -1, 0, 0));
}

TEST(Elementwise, remainders_of_floats_have_the_sign_of_the_divisor) {
  const Tensor a = floats({8}, {5, -5, 5, -5, -3, -0.0f, 1, infinity});
  const Tensor b = floats({8}, {3, 3, -3, -3, infinity, 2, 0, 2});
  auto y = values_of<float>(run_kernel_one("Mod", {a, b}, DType::float32, {8}));
  EXPECT_THAT(std::vector<float>(y.begin(), y.begin() + 6), ElementsAre(2, 1, -1, -2, infinity, 0));
  EXPECT_FALSE(std::signbit(y[5]));
  EXPECT_TRUE(std::isnan(y[6]) && std::isnan(y[7]));
}

TEST(Elementwise, shifts_of_signed_integers_keep_the_sign_to_the_right) {
  const Tensor a = Tensor::of<int32_t>(DType::int32, {6}, {-8, 4, -1, 1, -8, INT32_MIN});
  const Tensor b = Tensor::of<int32_t>(DType::int32, {6}, {1, 1, 100, 31, -1, 31});
  auto run = [&](const std::string& direction) {
    return values_of<int32_t>(
        run_kernel_one("BitShift", {a, b}, DType::int32, {6}, {.attributes = {{"direction", direction}}}));
  };
  EXPECT_THAT(run("LEFT"), ElementsAre(-16, 8, 0, INT32_MIN, 0, 0));
  EXPECT_THAT(run("RIGHT"), ElementsAre(-4, 2, -1, 0, -1, -1));
}

TEST(Elementwise, powers_take_exponents_of_any_type) {
  const Tensor base = floats({4}, {-3, 2, 0.5, 9});
  auto run = [&](const Tensor& exponent) {
    return values_of<float>(run_kernel_one("Pow", {base, exponent}, DType::float32, {4}));
  };
  EXPECT_THAT(run(floats({}, {2})), ElementsAre(9, 4, 0.25, 81));
  EXPECT_THAT(run(ints({}, {3})), ElementsAre(-27, 8, 0.125, 729));
  EXPECT_THAT(run(Tensor::of<uint32_t>(DType::uint32, {}, {3})), ElementsAre(-27, 8, 0.125, 729));
  EXPECT_THAT(run(floats({4}, {2, -1, 1, 0.5})), ElementsAre(9, 0.5, 0.5, 3));
  const Tensor whole = run_kernel_one("Pow", {ints({4}, {3, -2, 1, 2}), ints({4}, {4, 3, -5, -1})}, DType::int64, {4});
  EXPECT_THAT(values_of<int64_t>(whole), ElementsAre(81, -8, 1, 0));
}

TEST(Elementwise, powers_of_integers_beyond_their_range_end_there_or_wrap_around) {
  const Tensor base = ints({4}, {INT64_MAX, -2, 0, 3});
  auto run = [&](const Tensor& exponent) {
    return values_of<int64_t>(run_kernel_one("Pow", {base, exponent}, DType::int64, {4}));
  };
  EXPECT_THAT(run(floats({4}, {3, 65, -1, 0.5})), ElementsAre(INT64_MAX, INT64_MIN, INT64_MAX, 1));
  EXPECT_THAT(run(floats({4}, {2, 0.5, 1, 2})), ElementsAre(1, 0, 0, 9)) << "a square wraps around, NaN is 0";
  EXPECT_THAT(run(floats({}, {2})), ElementsAre(1, 4, 0, 9));
}

TEST(Elementwise, variadic_operators_take_any_number_of_operands) {
  const std::vector<Tensor> in = {floats({2, 1}, {1, 2}), floats({3}, {10, 20, 30}), floats({}, {100})};
  auto run = [&](const std::string& op) { return values_of<float>(run_kernel_one(op, in, DType::float32, {2, 3})); };
  EXPECT_THAT(run("Sum"), ElementsAre(111, 121, 131, 112, 122, 132));
  EXPECT_THAT(run("Mean"), ElementsAre(37, 121.0f / 3, 131.0f / 3, 112.0f / 3, 122.0f / 3, 44));
  EXPECT_THAT(run("Max"), ElementsAre(100, 100, 100, 100, 100, 100));
  EXPECT_THAT(run("Min"), ElementsAre(1, 1, 1, 2, 2, 2));
  EXPECT_THAT(values_of<float>(run_kernel_one("Sum", {floats({2}, {1, 2})}, DType::float32, {2})), ElementsAre(1, 2));
  // 256 + 1 is 256 in bfloat16; three operands are rounded once.
  auto brain = [](float x) { return narrowed(DType::bfloat16, {1}, {x}); };
  EXPECT_THAT(widened(run_kernel_one("Sum", {brain(256), brain(1), brain(1)}, DType::bfloat16, {1})), ElementsAre(258));
}

TEST(Elementwise, max_and_min_pass_nan_from_either_side) {
  const Tensor a = floats({3}, {not_a_number, 1, 2}), b = floats({3}, {1, not_a_number, 3});
  for (const std::string op : {"Max", "Min"}) {
    const std::vector<float> y = values_of<float>(run_kernel_one(op, {a, b}, DType::float32, {3}));
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1])) << op;
  }
}

TEST(Elementwise, bits_and_truth_values) {
  const Tensor a = Tensor::of<uint8_t>(DType::uint8, {3}, {12, 255, 1}),
               b = Tensor::of<uint8_t>(DType::uint8, {3}, {10, 1, 9});
  auto run = [&](const std::string& op, const Attributes& attributes = {}) {
    return values_of<uint8_t>(run_kernel_one(op, {a, b}, DType::uint8, {3}, {.attributes = attributes}));
  };
  EXPECT_THAT(run("BitwiseAnd"), ElementsAre(8, 1, 1));
  EXPECT_THAT(run("BitwiseOr"), ElementsAre(14, 255, 9));
  EXPECT_THAT(run("BitwiseXor"), ElementsAre(6, 254, 8));
  EXPECT_THAT(run("BitShift", {{"direction", std::string("LEFT")}}), ElementsAre(0, 254, 0));
  EXPECT_THAT(run("BitShift", {{"direction", std::string("RIGHT")}}), ElementsAre(0, 127, 0));
  const std::vector<Tensor> truths = {booleans({4}, {0, 0, 1, 1}), booleans({4}, {0, 1, 0, 1})};
  auto logic = [&](const std::string& op) {
    return values_of<uint8_t>(run_kernel_one(op, truths, DType::boolean, {4}));
  };
  EXPECT_THAT(logic("And"), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(logic("Or"), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(logic("Xor"), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(values_of<uint8_t>(run_kernel_one("Not", {truths[0]}, DType::boolean, {4})), ElementsAre(1, 1, 0, 0));
}

TEST(Elementwise, prelu_scales_what_is_negative) {
  const Tensor x = floats({2, 2}, {-1, 2, -3, 4}), slope = floats({2, 1}, {0.5, 0.25});
  EXPECT_THAT(values_of<float>(run_kernel_one("PRelu", {x, slope}, DType::float32, {2, 2})),
              ElementsAre(-0.5, 2, -0.75, 4));
}

TEST(Elementwise, where_selects_without_looking_at_the_other_value) {
  const Tensor condition = booleans({2, 1}, {1, 0});
  const Tensor a = floats({3}, {1, 2, 3}), b = floats({}, {not_a_number});
  const std::vector<float> y = values_of<float>(run_kernel_one("Where", {condition, a, b}, DType::float32, {2, 3}));
  EXPECT_THAT(std::vector<float>(y.begin(), y.begin() + 3), ElementsAre(1, 2, 3));
  EXPECT_TRUE(std::isnan(y[3]));
  const Tensor mask = booleans({4}, {1, 0, 0, 1});
  EXPECT_THAT(
      values_of<int64_t>(run_kernel_one("Where", {mask, ints({}, {7}), ints({4}, {1, 2, 3, 4})}, DType::int64, {4})),
      ElementsAre(7, 2, 3, 7));
}

TEST(Elementwise, clip_binds_from_either_side_or_neither) {
  const Tensor x = floats({4}, {-5, 0, 5, not_a_number});
  auto run = [&](Tensor low, Tensor high) {
    return values_of<float>(run_kernel_one("Clip", {x, low, high}, DType::float32, {4}, {.known = false}));
  };
  auto three = [](std::vector<float> y) { return std::vector<float>(y.begin(), y.begin() + 3); };
  EXPECT_THAT(three(run(floats({}, {-1}), floats({}, {2}))), ElementsAre(-1, 0, 2));
  EXPECT_THAT(three(run({}, floats({}, {2}))), ElementsAre(-5, 0, 2));
  EXPECT_THAT(three(run(floats({}, {1}), {})), ElementsAre(1, 1, 5));
  EXPECT_TRUE(std::isnan(run(floats({}, {-1}), floats({}, {2}))[3]));
}

TEST(Elementwise, casts_truncate_saturate_and_round) {
  const Tensor x = floats({7}, {-1.7f, 1.7f, 300, -300, 1e30f, -1e30f, not_a_number});
  auto cast = [](const Tensor& from, DType to) { return run_kernel_one("Cast", {from}, to, from.dims); };
  EXPECT_THAT(values_of<int8_t>(cast(x, DType::int8)), ElementsAre(-1, 1, 127, -128, 127, -128, 0));
  EXPECT_THAT(values_of<uint8_t>(cast(x, DType::uint8)), ElementsAre(0, 1, 255, 0, 255, 0, 0));
  EXPECT_THAT(values_of<int64_t>(cast(x, DType::int64)), ElementsAre(-1, 1, 300, -300, INT64_MAX, INT64_MIN, 0));
  EXPECT_THAT(values_of<uint8_t>(cast(x, DType::boolean)), ElementsAre(1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(values_of<uint8_t>(cast(floats({2}, {0.0f, -0.0f}), DType::boolean)), ElementsAre(0, 0));
  EXPECT_THAT(values_of<float>(cast(booleans({2}, {0, 1}), DType::float32)), ElementsAre(0, 1));
  EXPECT_THAT(values_of<int32_t>(cast(ints({2}, {(int64_t{1} << 32) + 5, -1}), DType::int32)), ElementsAre(5, -1));
  EXPECT_THAT(widened(cast(floats({2}, {1.00390625f, 1.01171875f}), DType::bfloat16)), ElementsAre(1, 1.015625));
  EXPECT_THAT(widened(cast(floats({2}, {65519, 65520}), DType::float16)), ElementsAre(65504, infinity));
  EXPECT_THAT(values_of<double>(cast(narrowed(DType::float16, {1}, {0.1f}), DType::float64)),
              ElementsAre(0.0999755859375));
}

TEST(Elementwise, dropout_keeps_everything_in_inference_and_refuses_training) {
  const Tensor x = floats({3}, {1, 2, 3}), ratio = floats({}, {0.5});
  auto run = [&](int training) {
    return run_kernel("Dropout", {x, ratio, booleans({}, {training})}, {{DType::float32, {3}}, {DType::boolean, {3}}});
  };
  EXPECT_THAT(values_of<float>(run(0)[0]), ElementsAre(1, 2, 3));
  EXPECT_THAT(values_of<uint8_t>(run(0)[1]), ElementsAre(1, 1, 1));
  EXPECT_THROW(run(1), Error);
}

TEST(Elementwise, an_element_type_that_is_not_computed_is_named) {
  const Tensor packed = Tensor::zeros(DType::int4, {4});
  try {
    run_kernel_one("Exp", {packed}, DType::int4, {4});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("int4"));
    EXPECT_THAT(error.what(), testing::HasSubstr("tested"));
  }
}

TEST(Elementwise, nothing_comes_of_nothing) {
  const Tensor empty = Tensor::zeros(DType::float32, {3, 0});
  EXPECT_EQ(run_kernel_one("Exp", {empty}, DType::float32, {3, 0}).bytes, 0u);
  EXPECT_EQ(run_kernel_one("Add", {empty, floats({1, 1}, {4})}, DType::float32, {3, 0}).bytes, 0u);
  EXPECT_EQ(run_kernel_one("Where", {booleans({1}, {1}), empty, empty}, DType::float32, {3, 0}).bytes, 0u);
  EXPECT_EQ(run_kernel_one("Max", {empty, empty, empty}, DType::float32, {3, 0}).bytes, 0u);
}

// "Otherwise 0", as the formulas end, is for NaN too.
TEST(Elementwise, thresholds_that_nan_does_not_pass_give_zero) {
  for (const char* op : {"ThresholdedRelu", "Shrink"}) EXPECT_THAT(run_floats(op, {NAN, 4}), ElementsAre(0, 4)) << op;
}

}  // namespace
}  // namespace tessera::kernels

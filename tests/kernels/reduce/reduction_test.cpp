#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "kernels/run_kernel.h"
#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

using testing::ElementsAre;

constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<float> run_reduction(const std::string& op, const Tensor& x, std::vector<int64_t> axes, Dims dims,
                                 const Attributes& attributes = {}) {
  const Tensor along = ints({static_cast<int64_t>(axes.size())}, axes);
  return values_of<float>(run_kernel_one(op, {x, along}, DType::float32, std::move(dims), {.attributes = attributes}));
}

struct Case {
  Dims dims, result;
  std::vector<int64_t> axes;
  std::vector<float> values;
  std::vector<std::vector<double>> groups;  ///< the elements that each result element reduces
};

Case random_case(std::mt19937& random) {
  Case made;
  made.dims.resize(1 + random() % 5);
  std::vector<bool> reduced;
  for (int64_t& extent : made.dims) {
    extent = random() % 15 == 0 ? 0 : 1 + random() % (made.dims.size() < 3 ? 1500 / made.dims.size() : 6);
    reduced.push_back(random() % 2);
  }
  reduced[random() % reduced.size()] = true;
  for (size_t d = 0; d < made.dims.size(); ++d) {
    made.result.push_back(reduced[d] ? 1 : made.dims[d]);
    if (reduced[d])
      made.axes.push_back(static_cast<int64_t>(d) - (random() % 2 ? static_cast<int64_t>(made.dims.size()) : 0));
  }
  made.values.resize(count_of(made.dims));
  made.groups.resize(count_of(made.result));
  for (size_t i = 0; i < made.values.size(); ++i) {
    made.values[i] = static_cast<float>(static_cast<int>(random() % 41) - 20) / 8;
    int64_t rest = static_cast<int64_t>(i), to = 0, stride = 1;
    for (size_t d = made.dims.size(); d-- > 0; rest /= made.dims[d]) {
      if (reduced[d]) continue;
      to += rest % made.dims[d] * stride;
      stride *= made.dims[d];
    }
    made.groups[to].push_back(made.values[i]);
  }
  return made;
}

double sum_of(const std::vector<double>& x, double (*map)(double)) {
  double sum = 0;
  for (double element : x) sum += map(element);
  return sum;
}

using Reference = double (*)(const std::vector<double>&);
const std::vector<std::pair<std::string, Reference>> references = {
    {"ReduceSum", [](auto& x) { return sum_of(x, [](double v) { return v; }); }},
    {"ReduceMean", [](auto& x) { return sum_of(x, [](double v) { return v; }) / static_cast<double>(x.size()); }},
    {"ReduceMax", [](auto& x) { return x.empty() ? -infinity : *std::max_element(x.begin(), x.end()); }},
    {"ReduceMin", [](auto& x) { return x.empty() ? infinity : *std::min_element(x.begin(), x.end()); }},
    {"ReduceSumSquare", [](auto& x) { return sum_of(x, [](double v) { return v * v; }); }},
    {"ReduceL1", [](auto& x) { return sum_of(x, [](double v) { return std::fabs(v); }); }},
    {"ReduceL2", [](auto& x) { return std::sqrt(sum_of(x, [](double v) { return v * v; })); }},
    {"ReduceLogSum", [](auto& x) { return std::log(sum_of(x, [](double v) { return v; })); }},
    {"ReduceLogSumExp", [](auto& x) { return std::log(sum_of(x, [](double v) { return std::exp(v); })); }},
};

TEST(Reduction, agrees_with_a_sum_in_double_over_any_axes) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 150; ++trial) {
    const Case made = random_case(random);
    for (const auto& [op, reference] : references) {
      const std::vector<float> y = run_reduction(op, floats(made.dims, made.values), made.axes, made.result);
      for (size_t i = 0; i < y.size(); ++i) {
        const double exact = reference(made.groups[i]);
        if (std::isnan(exact))
          ASSERT_TRUE(std::isnan(y[i])) << op;
        else if (std::isinf(exact))
          ASSERT_EQ(y[i], exact) << op;
        else
          ASSERT_NEAR(y[i], exact, 1e-6 * std::max(1.0, std::fabs(exact))) << op << " of " << made.groups[i].size();
      }
    }
  }
}

TEST(Reduction, logarithms_of_integers_that_are_none_go_to_the_nearest) {
  const auto reduced = [](const Tensor& tensor) {
    return run_kernel_one("ReduceLogSum", {tensor, ints({1}, {1})}, tensor.dtype, {3, 1}).to_int64();
  };
  // log gives -inf for 0, NaN for -2, and 2.08 for 8.
  EXPECT_THAT(reduced(Tensor::of(DType::int64, {3, 2}, std::vector<int64_t>{0, 0, -1, -1, 4, 4})),
              ElementsAre(std::numeric_limits<int64_t>::min(), 0, 2));
  EXPECT_THAT(reduced(Tensor::of(DType::int32, {3, 2}, std::vector<int32_t>{0, 0, -1, -1, 4, 4})),
              ElementsAre(std::numeric_limits<int32_t>::min(), 0, 2));
}

TEST(Reduction, sixteen_bit_floats_are_summed_in_float32) {
  const std::vector<float> ones(3000, 1.0f);
  for (DType dtype : {DType::bfloat16, DType::float16}) {
    const Tensor rows = narrowed(dtype, {1, 3000}, ones), columns = narrowed(dtype, {3000, 1}, ones);
    EXPECT_THAT(widened(run_kernel_one("ReduceSum", {rows, ints({1}, {1})}, dtype, {1, 1})),
                widened(narrowed(dtype, {1}, {3000})));
    EXPECT_THAT(widened(run_kernel_one("ReduceSum", {columns, ints({1}, {0})}, dtype, {1, 1})),
                widened(narrowed(dtype, {1}, {3000})));
  }
}

TEST(Reduction, a_shard_of_the_kept_dimensions_has_the_bits_of_the_whole) {
  constexpr uint32_t seed = 11;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  constexpr int64_t outer = 3, rows = 700, columns = 37;
  std::vector<float> x(outer * rows * columns);
  for (float& element : x) element = normal(random);
  for (const std::string op : {"ReduceSum", "ReduceLogSumExp"}) {
    const std::vector<float> whole = run_reduction(op, floats({outer, rows, columns}, x), {1}, {outer, 1, columns});
    for (int64_t column : {0, 5, 36}) {
      std::vector<float> one;  // a single column
      for (int64_t i = 0; i < outer * rows; ++i) one.push_back(x[i * columns + column]);
      const std::vector<float> shard = run_reduction(op, floats({outer, rows, 1}, one), {1}, {outer, 1, 1});
      for (int64_t o = 0; o < outer; ++o) EXPECT_EQ(shard[o], whole[o * columns + column]) << op;
    }
  }
}

TEST(Reduction, a_team_of_threads_gives_the_same_bits) {
  std::vector<float> x(200 * 301);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  for (int64_t axis : {0, 1}) {
    const Dims dims = axis == 0 ? Dims{1, 301} : Dims{200, 1};
    const std::vector<Tensor> in = {floats({200, 301}, x), ints({1}, {axis})};
    EXPECT_EQ(values_of<float>(run_kernel_one("ReduceSum", in, DType::float32, dims)),
              values_of<float>(run_kernel_one("ReduceSum", in, DType::float32, dims, {.threads = 3})));
  }
}

TEST(Reduction, integers_and_truth_values) {
  const Tensor x = ints({2, 3}, {1, 2, 3, -4, 5, 6});
  auto reduce = [&](const std::string& op) {
    return values_of<int64_t>(run_kernel_one(op, {x, ints({1}, {1})}, DType::int64, {2, 1}));
  };
  EXPECT_THAT(reduce("ReduceSum"), ElementsAre(6, 7));
  EXPECT_THAT(reduce("ReduceMean"), ElementsAre(2, 2));
  EXPECT_THAT(reduce("ReduceProd"), ElementsAre(6, -120));
  EXPECT_THAT(reduce("ReduceMax"), ElementsAre(3, 6));
  EXPECT_THAT(reduce("ReduceMin"), ElementsAre(1, -4));
  EXPECT_THAT(reduce("ReduceL1"), ElementsAre(6, 15));
  EXPECT_THAT(reduce("ReduceSumSquare"), ElementsAre(14, 77));
  const Tensor truths = booleans({2, 2}, {0, 1, 0, 0});
  EXPECT_THAT(values_of<uint8_t>(run_kernel_one("ReduceMax", {truths, ints({1}, {1})}, DType::boolean, {2, 1})),
              ElementsAre(1, 0));
  EXPECT_THAT(values_of<uint8_t>(run_kernel_one("ReduceMin", {truths, ints({1}, {0})}, DType::boolean, {1, 2})),
              ElementsAre(0, 0));
}

TEST(Reduction, nothing_reduces_to_the_identity) {
  const Tensor empty = Tensor::zeros(DType::float32, {2, 0});
  EXPECT_THAT(run_reduction("ReduceSum", empty, {1}, {2, 1}), ElementsAre(0, 0));
  EXPECT_THAT(run_reduction("ReduceProd", empty, {1}, {2, 1}), ElementsAre(1, 1));
  EXPECT_THAT(run_reduction("ReduceMax", empty, {1}, {2, 1}), ElementsAre(-infinity, -infinity));
  EXPECT_THAT(run_reduction("ReduceMin", empty, {1}, {2, 1}), ElementsAre(infinity, infinity));
  EXPECT_THAT(run_reduction("ReduceLogSumExp", empty, {1}, {2, 1}), ElementsAre(-infinity, -infinity));
  EXPECT_THAT(run_reduction("ReduceSum", empty, {0}, {1, 0}), ElementsAre());
}

TEST(Reduction, no_axes_mean_all_or_none) {
  const Tensor x = floats({2, 2}, {1, 2, 3, 4});
  EXPECT_THAT(values_of<float>(run_kernel_one("ReduceSum", {x}, DType::float32, {1, 1})), ElementsAre(10));
  EXPECT_THAT(run_reduction("ReduceSum", x, {}, {}), ElementsAre(10));
  EXPECT_THAT(run_reduction("ReduceSum", x, {}, {2, 2}, {{"noop_with_empty_axes", int64_t{1}}}),
              ElementsAre(1, 2, 3, 4));
  EXPECT_THROW(run_reduction("ReduceSum", x, {2}, {2, 2}), Error);
}

TEST(Reduction, log_sum_exp_neither_overflows_nor_loses_infinities) {
  EXPECT_THAT(run_reduction("ReduceLogSumExp", floats({2}, {1000, 1000}), {0}, {1}),
              ElementsAre(testing::FloatEq(1000 + std::log(2.0f))));
  EXPECT_THAT(run_reduction("ReduceLogSumExp", floats({2}, {-infinity, -infinity}), {0}, {1}), ElementsAre(-infinity));
  EXPECT_THAT(run_reduction("ReduceLogSumExp", floats({2}, {infinity, 1}), {0}, {1}), ElementsAre(infinity));
}

TEST(Reduction, nan_wins_a_maximum) {
  std::vector<float> x(100, 1.0f);
  x[37] = std::nanf("");
  for (const std::string op : {"ReduceMax", "ReduceMin"}) {
    EXPECT_TRUE(std::isnan(run_reduction(op, floats({100}, x), {0}, {1})[0])) << op;
    EXPECT_TRUE(std::isnan(run_reduction(op, floats({100, 1}, x), {0}, {1, 1})[0])) << op;
  }
}

TEST(Reduction, arg_max_and_arg_min_choose_among_equals) {
  const Tensor x = floats({2, 3}, {1, 3, 3, 5, 0, 0});
  auto arg = [&](const std::string& op, int64_t axis, bool last, Dims dims) {
    const Attributes attributes = {{"axis", axis}, {"select_last_index", static_cast<int64_t>(last)}};
    return values_of<int64_t>(run_kernel_one(op, {x}, DType::int64, dims, {.attributes = attributes}));
  };
  EXPECT_THAT(arg("ArgMax", 1, false, {2, 1}), ElementsAre(1, 0));
  EXPECT_THAT(arg("ArgMax", -1, true, {2}), ElementsAre(2, 0));
  EXPECT_THAT(arg("ArgMin", 1, false, {2, 1}), ElementsAre(0, 1));
  EXPECT_THAT(arg("ArgMin", 1, true, {2, 1}), ElementsAre(0, 2));
  EXPECT_THAT(arg("ArgMax", 0, false, {1, 3}), ElementsAre(1, 0, 0));
  const Tensor odd = floats({4}, {1, std::nanf(""), 9, std::nanf("")});
  EXPECT_THAT(values_of<int64_t>(run_kernel_one("ArgMax", {odd}, DType::int64, {1})), ElementsAre(1));
}

TEST(Reduction, cumulative_sums_in_four_ways) {
  const Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  auto sums = [&](int64_t axis, bool exclusive, bool reverse) {
    const Attributes attributes = {{"exclusive", static_cast<int64_t>(exclusive)},
                                   {"reverse", static_cast<int64_t>(reverse)}};
    return values_of<float>(run_kernel_one("CumSum", {x, ints({}, {axis})}, DType::float32, {2, 3},
                                           {.attributes = attributes, .in_place = 0}));
  };
  EXPECT_THAT(sums(1, false, false), ElementsAre(1, 3, 6, 4, 9, 15));
  EXPECT_THAT(sums(-1, true, false), ElementsAre(0, 1, 3, 0, 4, 9));
  EXPECT_THAT(sums(1, false, true), ElementsAre(6, 5, 3, 15, 11, 6));
  EXPECT_THAT(sums(1, true, true), ElementsAre(5, 3, 0, 11, 6, 0));
  EXPECT_THAT(sums(0, false, false), ElementsAre(1, 2, 3, 5, 7, 9));
}

}  // namespace
}  // namespace tessera::kernels

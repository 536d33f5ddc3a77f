#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "kernels/random_tensors.h"
#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

struct Forward {
  int64_t batch, q_heads, kv_heads, queries, keys, width, value_width;

  Dims q() const { return {batch, q_heads, queries, width}; }
  Dims k() const { return {batch, kv_heads, keys, width}; }
  Dims v() const { return {batch, kv_heads, keys, value_width}; }
  Dims y() const { return {batch, q_heads, queries, value_width}; }
  std::vector<std::pair<DType, Dims>> results(DType dtype = DType::float32) const {
    return {{dtype, q()}, {dtype, {batch, q_heads, keys, width}}, {dtype, {batch, q_heads, keys, value_width}}};
  }
};

struct Gradients {
  std::vector<float> y, q, k, v;
};

// What happens to scores: capped first, then biased. Batch and head are one number.
struct Scores {
  double cap = 0;
  std::function<double(int64_t head, int64_t i, int64_t j)> bias = [](int64_t, int64_t, int64_t) { return 0; };
};

// In double. `open(i, j)`: whether query i sees key j.
template <typename Open>
Gradients expected(const Forward& e, const Tensor& tq, const Tensor& tk, const Tensor& tv, const Tensor& tg, Open open,
                   const Scores& scores) {
  const auto q = tq.as<float>(), k = tk.as<float>(), v = tv.as<float>(), g = tg.as<float>();
  const double scale = 1 / std::sqrt(double(e.width));
  Gradients made;
  for (int64_t head = 0; head < e.batch * e.q_heads; ++head) {
    const int64_t kv = head / e.q_heads * e.kv_heads + head % e.q_heads / (e.q_heads / e.kv_heads);
    const float *hq = &q[head * e.queries * e.width], *hg = &g[head * e.queries * e.value_width],
                *hk = &k[kv * e.keys * e.width], *hv = &v[kv * e.keys * e.value_width];
    std::vector<double> of_k(e.keys * e.width), of_v(e.keys * e.value_width);
    for (int64_t i = 0; i < e.queries; ++i) {
      std::vector<double> p(e.keys), dp(e.keys), slope(e.keys, 1);
      double most = -infinity, sum = 0, row = 0;
      for (int64_t j = 0; j < e.keys; ++j) {
        for (int64_t d = 0; d < e.width; ++d) p[j] += scale * hq[i * e.width + d] * hk[j * e.width + d];
        if (scores.cap > 0) {
          const double share = std::tanh(p[j] / scores.cap);
          p[j] = scores.cap * share;
          slope[j] = 1 - share * share;
        }
        p[j] += scores.bias(head, i, j);
        if (!open(i, j)) p[j] = -infinity;
        most = std::max(most, p[j]);
      }
      for (double& each : p) sum += each = most == -infinity ? 0 : std::exp(each - most);
      std::vector<double> y(e.value_width), of_q(e.width);
      for (int64_t j = 0; j < e.keys; ++j) {
        p[j] /= sum == 0 ? 1 : sum;
        for (int64_t d = 0; d < e.value_width; ++d) {
          y[d] += p[j] * hv[j * e.value_width + d];
          dp[j] += double(hg[i * e.value_width + d]) * hv[j * e.value_width + d];
          of_v[j * e.value_width + d] += p[j] * hg[i * e.value_width + d];
        }
        row += p[j] * dp[j];
      }
      for (int64_t j = 0; j < e.keys; ++j)
        for (int64_t d = 0; d < e.width; ++d) {
          const double of_score = scale * p[j] * (dp[j] - row) * slope[j];
          of_q[d] += of_score * hk[j * e.width + d];
          of_k[j * e.width + d] += of_score * hq[i * e.width + d];
        }
      made.y.insert(made.y.end(), y.begin(), y.end());
      made.q.insert(made.q.end(), of_q.begin(), of_q.end());
    }
    made.k.insert(made.k.end(), of_k.begin(), of_k.end());
    made.v.insert(made.v.end(), of_v.begin(), of_v.end());
  }
  return made;
}

// Around the ends of blocks of queries, tiles of keys and vectors.
const std::vector<Forward>& all_forward() {
  static const std::vector<Forward> all{
      {1, 1, 1, 1, 1, 1, 1},       {2, 3, 3, 5, 7, 8, 8},     {1, 4, 2, 70, 130, 16, 16}, {1, 6, 1, 3, 65, 9, 5},
      {2, 2, 2, 129, 129, 64, 32}, {1, 8, 2, 1, 300, 32, 32}, {1, 2, 1, 64, 64, 16, 16},  {1, 2, 2, 63, 128, 17, 16},
  };
  return all;
}

template <typename Open>
void expect_gradients(const Forward& e, Open open, const RunOptions& options = {}, const Tensor& mask = {},
                      const Scores& scores = {}) {
  RandomTensors random(71);
  const Tensor q = random.normal_floats(e.q()), k = random.normal_floats(e.k()), v = random.normal_floats(e.v()),
               g = random.normal_floats(e.y());
  const Gradients wanted = expected(e, q, k, v, g, open, scores);
  RunOptions settings = options;
  settings.domain = "tessera";
  for (int threads : {1, 2}) {
    settings.threads = threads;
    const auto made =
        run_kernel("AttentionGradient", {q, k, v, mask, floats(e.y(), wanted.y), g}, e.results(), settings);
    EXPECT_THAT(values_of<float>(made[0]), Pointwise(FloatNear(2e-5f), wanted.q));
    EXPECT_THAT(values_of<float>(made[1]), Pointwise(FloatNear(2e-5f), wanted.k));
    EXPECT_THAT(values_of<float>(made[2]), Pointwise(FloatNear(2e-5f), wanted.v));
  }
}

TEST(AttentionGradient, IsThatOfTheDefinition) {
  for (const Forward& e : all_forward()) {
    SCOPED_TRACE(testing::Message() << e.queries << " queries, " << e.keys << " keys");
    expect_gradients(e, [](int64_t, int64_t) { return true; });
  }
}

TEST(AttentionGradient, PassesNothingToWhatAQueryDoesNotSee) {
  for (const Forward& e : all_forward()) {
    SCOPED_TRACE(testing::Message() << e.queries << " queries, " << e.keys << " keys");
    expect_gradients(e, [](int64_t i, int64_t j) { return j <= i; }, {.attributes = {{"is_causal", int64_t{1}}}});
    // Queries beyond the last key see nothing.
    expect_gradients(e, [](int64_t i, int64_t j) { return j >= i - 1 && j <= i; },
                     {.attributes = {{"left_window_size", int64_t{1}}, {"right_window_size", int64_t{0}}}});
    std::vector<int> open;
    for (int64_t i = 0; i < e.queries; ++i)
      for (int64_t j = 0; j < e.keys; ++j) open.push_back(i % 3 != 0 && (i + j) % 2 == 0);
    expect_gradients(
        e, [](int64_t i, int64_t j) { return i % 3 != 0 && (i + j) % 2 == 0; }, {},
        booleans({e.queries, e.keys}, open));
    // A mask of fewer keys hides the others.
    expect_gradients(
        e, [&](int64_t, int64_t j) { return j < e.keys / 2; }, {},
        floats({1, e.keys / 2}, std::vector<float>(e.keys / 2, 0.0f)));
  }
}

TEST(AttentionGradient, AddsMasksToScores) {
  const auto always = [](int64_t, int64_t) { return true; };
  for (const Forward& e : all_forward()) {
    SCOPED_TRACE(testing::Message() << e.queries << " queries, " << e.keys << " keys");
    for (const Dims& dims : {Dims{e.batch, e.q_heads, e.queries, e.keys}, Dims{e.q_heads, 1, e.keys},
                             Dims{e.batch, 1, e.queries, e.keys}, Dims{e.queries, e.keys}, Dims{1, e.keys}}) {
      Tensor mask = RandomTensors(74).normal_floats(dims);
      auto* biases = reinterpret_cast<float*>(mask.mutable_data());
      for (int64_t i = 0; i < mask.count(); i += 7) biases[i] = -infinity;
      Dims extents = dims;
      extents.insert(extents.begin(), 4 - extents.size(), 1);
      const auto at = [&](int64_t d, int64_t index) { return extents[d] == 1 ? 0 : index; };
      const auto bias = [&](int64_t head, int64_t i, int64_t j) {
        const int64_t batch = at(0, head / e.q_heads), own = at(1, head % e.q_heads);
        return double(biases[((batch * extents[1] + own) * extents[2] + at(2, i)) * extents[3] + j]);
      };
      expect_gradients(e, always, {}, mask, {.bias = bias});
    }
  }
}

TEST(AttentionGradient, IsThatOfCappedScores) {
  for (const Forward& e : all_forward()) {
    SCOPED_TRACE(testing::Message() << e.queries << " queries, " << e.keys << " keys");
    RunOptions options{.attributes = {{"softcap", 1.5F}}};
    expect_gradients(e, [](int64_t, int64_t) { return true; }, options, {}, {.cap = 1.5});
    options.attributes["is_causal"] = int64_t{1};
    Tensor mask = floats({1, e.keys}, std::vector<float>(e.keys, 0.25F));
    expect_gradients(e, [](int64_t i, int64_t j) { return j <= i; }, options, mask,
                     {.cap = 1.5, .bias = [](int64_t, int64_t, int64_t) { return 0.25; }});
  }
}

// Operands that lie as [batch, positions, heads, width], as models have them.
TEST(AttentionGradient, ReadsStridedOperands) {
  for (const Forward& e : all_forward()) {
    RandomTensors random(75);
    std::vector<Tensor> operands = {random.normal_floats(e.q()), random.normal_floats(e.k()),
                                    random.normal_floats(e.v()), {},
                                    random.normal_floats(e.y()), random.normal_floats(e.y())};
    const auto wanted = run_kernel("AttentionGradient", operands, e.results(), {.domain = "tessera"});
    RunOptions options{.domain = "tessera"};
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].dtype == DType::undefined) continue;
      const Dims dims = operands[i].dims;
      const int64_t heads = dims[1], positions = dims[2], width = dims[3];
      Tensor turned = Tensor::zeros(DType::float32, {dims[0], positions, heads, width});
      const auto from = operands[i].as<float>();
      auto* to = reinterpret_cast<float*>(turned.mutable_data());
      for (int64_t n = 0; n < turned.count(); ++n) {
        const int64_t d = n % width, p = n / width % positions, h = n / width / positions % heads,
                      b = n / width / positions / heads;
        to[((b * positions + p) * heads + h) * width + d] = from[n];
      }
      options.views[static_cast<int>(i)] = {dims, {positions * heads * width, width, heads * width, 1}, 0};
      operands[i] = turned;
    }
    const auto made = run_kernel("AttentionGradient", operands, e.results(), options);
    for (size_t r = 0; r < made.size(); ++r)
      EXPECT_EQ(values_of<float>(made[r]), values_of<float>(wanted[r])) << e.queries << " queries, result " << r;
  }
}

TEST(AttentionGradient, RefusesResultsOfOtherExtents) {
  const Forward e{1, 4, 4, 12, 12, 8, 8};
  RandomTensors random(76);
  const std::vector<Tensor> operands = {random.normal_floats(e.q()), random.normal_floats(e.k()),
                                        random.normal_floats(e.v()), {},
                                        random.normal_floats(e.y()), random.normal_floats(e.y())};
  for (size_t operand : {4, 5}) {
    std::vector<Tensor> others = operands;
    others[operand] = random.normal_floats({1, 1, 1, 8});
    EXPECT_THROW(run_kernel("AttentionGradient", others, e.results(), {.domain = "tessera"}), Error);
  }
  for (size_t r = 0; r < 3; ++r) {
    auto results = e.results();
    results[r].second = {1, 4, 12, 4};
    EXPECT_THROW(run_kernel("AttentionGradient", operands, results, {.domain = "tessera"}), Error);
  }
}

TEST(AttentionGradient, ComputesSixteenBitsInFloat32) {
  const Forward e{1, 4, 2, 70, 90, 16, 24};
  RandomTensors random(72);
  for (DType dtype : {DType::bfloat16, DType::float16}) {
    const auto narrow = [&](const Dims& dims) { return narrowed(dtype, dims, random.normal(count_of(dims))); };
    const std::vector<Tensor> operands = {narrow(e.q()), narrow(e.k()), narrow(e.v()), {},
                                          narrow(e.y()), narrow(e.y())};
    std::vector<Tensor> wide;
    for (const Tensor& operand : operands)
      wide.push_back(operand.dtype == DType::undefined ? Tensor{} : floats(operand.dims, widened(operand)));
    const auto made = run_kernel("AttentionGradient", operands, e.results(dtype), {.domain = "tessera"});
    const auto wanted = run_kernel("AttentionGradient", wide, e.results(), {.domain = "tessera"});
    for (size_t r = 0; r < made.size(); ++r)
      EXPECT_EQ(widened(made[r]), widened(narrowed(dtype, made[r].dims, values_of<float>(wanted[r]))));
  }
}

TEST(AttentionGradient, LeavesOutWhatNobodyReads) {
  const Forward e{1, 2, 1, 5, 6, 16, 8};
  RandomTensors random(73);
  const std::vector<Tensor> operands = {random.normal_floats(e.q()), random.normal_floats(e.k()),
                                        random.normal_floats(e.v()), {},
                                        random.normal_floats(e.y()), random.normal_floats(e.y())};
  const auto all = run_kernel("AttentionGradient", operands, e.results(), {.domain = "tessera"});
  for (size_t left_out = 0; left_out < 3; ++left_out) {
    auto results = e.results();
    results[left_out].first = DType::undefined;
    const auto made = run_kernel("AttentionGradient", operands, results, {.domain = "tessera"});
    for (size_t r = 0; r < 3; ++r) {
      if (r == left_out) continue;
      EXPECT_EQ(values_of<float>(made[r]), values_of<float>(all[r]));
    }
  }
}

TEST(AttentionGradient, TakesRanksWithoutHeadsOrKeys) {
  for (const Forward& e : {Forward{1, 0, 0, 3, 5, 8, 8}, Forward{0, 2, 2, 3, 5, 8, 8}, Forward{1, 2, 1, 3, 0, 8, 8},
                           Forward{1, 2, 1, 0, 5, 8, 8}}) {
    const auto zeros = [](const Dims& dims) { return floats(dims, std::vector<float>(count_of(dims), 0.0f)); };
    const auto made =
        run_kernel("AttentionGradient", {zeros(e.q()), zeros(e.k()), zeros(e.v()), {}, zeros(e.y()), zeros(e.y())},
                   e.results(), {.domain = "tessera"});
    for (const Tensor& gradient : made)
      for (float element : gradient.as<float>()) EXPECT_EQ(element, 0);
  }
}

}  // namespace
}  // namespace tessera::kernels

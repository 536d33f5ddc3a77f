#include <gtest/gtest.h>

#include <cmath>

#include "kernels/run_kernel.h"
#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

float sigmoid(float x) {
  return 1 / (1 + std::exp(-x));
}

// One sequence of three numbers, one hidden element: the plain equations.
const Tensor kSequence = floats({3, 1, 1}, {0.5f, -1, 2});
constexpr float x[] = {0.5f, -1, 2};

std::vector<float> states_of(const std::string& type, const std::vector<Tensor>& operands, Attributes attributes = {}) {
  return values_of<float>(run_kernel_one(type, operands, DType::float32, {3, 1, 1, 1}, {std::move(attributes)}));
}

TEST(Recurrent, RnnIsTanhOfItsSum) {
  auto states =
      states_of("RNN", {kSequence, floats({1, 1, 1}, {2}), floats({1, 1, 1}, {0.5f}), floats({1, 2}, {1, 3})});
  float h = 0;
  for (int t = 0; t < 3; ++t) {
    h = std::tanh(2 * x[t] + 0.5f * h + 4);
    EXPECT_NEAR(states[t], h, 1e-6f);
  }
}

TEST(Recurrent, LstmKeepsACell) {
  const Tensor w = floats({1, 4, 1}, {1, 2, 3, 4}), r = floats({1, 4, 1}, {0.1f, 0.2f, 0.3f, 0.4f});
  const Tensor b = floats({1, 8}, {1, 0, 0, 0, 0, 0, 0, -1}), p = floats({1, 3}, {0.5f, 0.6f, 0.7f});
  auto results = run_kernel("LSTM", {kSequence, w, r, b, {}, {}, floats({1, 1, 1}, {0.25f}), p},
                            {{DType::float32, {3, 1, 1, 1}}, {DType::float32, {1, 1, 1}}, {DType::float32, {1, 1, 1}}});
  float h = 0, c = 0.25f;
  for (int t = 0; t < 3; ++t) {
    const float i = sigmoid(x[t] + 0.1f * h + 1 + 0.5f * c), f = sigmoid(3 * x[t] + 0.3f * h + 0.7f * c);
    const float g = std::tanh(4 * x[t] + 0.4f * h - 1), before = h;
    c = f * c + i * g;
    h = sigmoid(2 * x[t] + 0.2f * before + 0.6f * c) * std::tanh(c);
    EXPECT_NEAR(values_of<float>(results[0])[t], h, 1e-6f);
  }
  EXPECT_NEAR(values_of<float>(results[1])[0], h, 1e-6f);
  EXPECT_NEAR(values_of<float>(results[2])[0], c, 1e-6f);
}

TEST(Recurrent, GruResetsBeforeOrAfterItsProduct) {
  const Tensor w = floats({1, 3, 1}, {1, 2, 3}), r = floats({1, 3, 1}, {0.1f, 0.2f, 0.3f});
  const Tensor b = floats({1, 6}, {0, 0, 0.5f, 0, 0, 0.25f});
  for (int64_t after : {0, 1}) {
    auto states = states_of("GRU", {kSequence, w, r, b}, {{"linear_before_reset", after}});
    float h = 0;
    for (int t = 0; t < 3; ++t) {
      const float update = sigmoid(x[t] + 0.1f * h), reset = sigmoid(2 * x[t] + 0.2f * h);
      const float inner = after ? reset * (0.3f * h + 0.25f) : 0.3f * (reset * h) + 0.25f;
      h = (1 - update) * std::tanh(3 * x[t] + 0.5f + inner) + update * h;
      EXPECT_NEAR(states[t], h, 1e-6f) << after;
    }
  }
}

TEST(Recurrent, AnEndedSequenceGivesZerosAndKeepsItsState) {
  const std::vector<Tensor> operands = {
      kSequence, floats({1, 1, 1}, {1}), floats({1, 1, 1}, {1}), {}, Tensor::of<int32_t>(DType::int32, {1}, {2})};
  for (const char* direction : {"forward", "reverse"}) {
    auto results = run_kernel("RNN", operands, {{DType::float32, {3, 1, 1, 1}}, {DType::float32, {1, 1, 1}}},
                              {{{"direction", std::string(direction)}}});
    const bool forward = std::string(direction) == "forward";
    const float first = std::tanh(forward ? x[0] : x[1]), last = std::tanh((forward ? x[1] : x[0]) + first);
    auto states = values_of<float>(results[0]);
    EXPECT_NEAR(states[forward ? 0 : 1], first, 1e-6f);
    EXPECT_NEAR(states[forward ? 1 : 0], last, 1e-6f);
    EXPECT_EQ(states[2], 0);
    EXPECT_NEAR(values_of<float>(results[1])[0], last, 1e-6f);
  }
}

TEST(Recurrent, BatchFirstIsTheSameTransposed) {
  constexpr int64_t t = 2, n = 3, i = 4, h = 5;
  std::vector<float> time_first(t * n * i), batch_first(t * n * i);
  for (int64_t a = 0; a < t; ++a)
    for (int64_t b = 0; b < n; ++b)
      for (int64_t c = 0; c < i; ++c)
        time_first[(a * n + b) * i + c] = batch_first[(b * t + a) * i + c] =
            std::sin(static_cast<float>(a + 3 * b + 7 * c));
  auto ramp = [](Dims dims) {
    std::vector<float> elements(static_cast<size_t>(count_of(dims)));
    for (size_t k = 0; k < elements.size(); ++k) elements[k] = std::cos(static_cast<float>(k));
    return floats(dims, elements);
  };
  const Tensor w = ramp({2, 4 * h, i}), r = ramp({2, 4 * h, h});
  const std::string both = "bidirectional";
  auto plain = values_of<float>(run_kernel_one("LSTM", {floats({t, n, i}, time_first), w, r}, DType::float32,
                                               {t, 2, n, h}, {{{"direction", both}}}));
  auto turned = values_of<float>(run_kernel_one("LSTM", {floats({n, t, i}, batch_first), w, r}, DType::float32,
                                                {n, t, 2, h}, {{{"direction", both}, {"layout", int64_t{1}}}}));
  for (int64_t a = 0; a < t; ++a)
    for (int64_t d = 0; d < 2; ++d)
      for (int64_t b = 0; b < n; ++b)
        for (int64_t c = 0; c < h; ++c)
          EXPECT_EQ(plain[((a * 2 + d) * n + b) * h + c], turned[((b * t + a) * 2 + d) * h + c]);
}

}  // namespace
}  // namespace tessera::kernels

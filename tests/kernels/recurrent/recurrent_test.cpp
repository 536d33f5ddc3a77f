#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/random_tensors.h"
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

// ONNX's equations, element by element in double, for one sequence in one direction.
struct Equations {
  std::string type;
  int64_t h, i;
  const float *w, *r, *b, *p;  // of this direction; b and p may be null
  bool reset_after = false, coupled = false;
  double clip = INFINITY;

  double clipped(double x) const { return std::clamp(x, -clip, clip); }
  double sigma(double x) const { return 1 / (1 + std::exp(-clipped(x))); }
  double bias(int64_t row, bool of_state) const {
    const int64_t rows = h * (type == "LSTM" ? 4 : type == "GRU" ? 3 : 1);
    return b ? b[row + (of_state ? rows : 0)] : 0;
  }
  double of_input(int64_t gate, int64_t j, const float* x) const {
    double sum = bias(gate * h + j, false);
    for (int64_t k = 0; k < i; ++k) sum += static_cast<double>(w[(gate * h + j) * i + k]) * x[k];
    return sum;
  }
  double of_state(int64_t gate, int64_t j, const std::vector<double>& state) const {
    double sum = bias(gate * h + j, true);
    for (int64_t k = 0; k < h; ++k) sum += r[(gate * h + j) * h + k] * state[k];
    return sum;
  }

  void step(const float* x, std::vector<double>& hidden, std::vector<double>& cell) const {
    std::vector<double> next(hidden.size()), reset(hidden.size());
    const auto sum = [&](int64_t gate, int64_t j) { return of_input(gate, j, x) + of_state(gate, j, hidden); };
    for (int64_t j = 0; j < h && type == "GRU"; ++j) reset[j] = sigma(sum(1, j)) * hidden[j];
    for (int64_t j = 0; j < h; ++j) {
      if (type == "RNN") {
        next[j] = std::tanh(clipped(sum(0, j)));
      } else if (type == "GRU") {
        const double inner =
            of_input(2, j, x) + (reset_after ? sigma(sum(1, j)) * of_state(2, j, hidden) : of_state(2, j, reset));
        const double update = sigma(sum(0, j));
        next[j] = (1 - update) * std::tanh(clipped(inner)) + update * hidden[j];
      } else {
        const auto peek = [&](int64_t which) { return p ? p[which * h + j] * cell[j] : 0; };
        const double in = sigma(sum(0, j) + peek(0)), forget = coupled ? 1 - in : sigma(sum(2, j) + peek(2));
        cell[j] = forget * cell[j] + in * std::tanh(clipped(sum(3, j)));
        next[j] = sigma(sum(1, j) + peek(1)) * std::tanh(cell[j]);
      }
    }
    hidden = next;
  }
};

// All operators, directions, options and operands, at widths around those of vectors: plain and packed, on one thread
// and on two.
TEST(Recurrent, EveryFormFollowsTheEquations) {
  constexpr uint32_t seed = 20261;
  RandomTensors random(seed);
  int64_t checked = 0;
  for (const std::string type : {"RNN", "GRU", "LSTM"})
    for (const std::string direction : {"forward", "reverse", "bidirectional"})
      for (const int64_t h : {1, 7, 16, 17, 33})
        for (const int64_t n : {1, 3, 6})
          for (int form = 0; form < 4; ++form) {
            const int64_t t = form == 0 ? 1 : 6, i = 5, gates = type == "LSTM" ? 4 : type == "GRU" ? 3 : 1;
            const int64_t d = direction == "bidirectional" ? 2 : 1;
            const bool full = form >= 2;
            std::vector<int32_t> lengths;
            for (int64_t row = 0; row < n; ++row) lengths.push_back(static_cast<int32_t>((row * 5 + h) % (t + 1)));
            const Tensor x = random.normal_floats({t, n, i}), w = random.normal_floats({d, gates * h, i}, 0.5f),
                         r = random.normal_floats({d, gates * h, h}, 0.3f);
            std::vector<Tensor> operands = {x, w, r};
            if (full)
              operands.insert(operands.end(),
                              {random.normal_floats({d, 2 * gates * h}), Tensor::of(DType::int32, {n}, lengths),
                               random.normal_floats({d, n, h})});
            if (full && type == "LSTM")
              operands.insert(operands.end(), {random.normal_floats({d, n, h}), random.normal_floats({d, 3 * h})});
            Attributes attributes = {{"direction", direction}, {"hidden_size", h}};
            if (form == 3) {
              attributes["clip"] = 0.8f;
              if (type == "GRU") attributes["linear_before_reset"] = int64_t{1};
              if (type == "LSTM") attributes["input_forget"] = int64_t{1};
            }
            const Dims dims = {t, d, n, h};
            const std::string what =
                fmt::format("{} {} h={} n={} form {} (seed {})", type, direction, h, n, form, seed);
            const auto plain = values_of<float>(run_kernel_one(type, operands, DType::float32, dims, {attributes}));
            for (int64_t way = 0; way < d; ++way) {
              const auto part = [&](size_t index) {
                return index < operands.size() && operands[index].dtype == DType::float32
                           ? operands[index].as<float>().data() + way * operands[index].count() / d
                           : nullptr;
              };
              Equations equations{type, h, i, part(1), part(2), part(3), part(7)};
              equations.reset_after = equations.coupled = form == 3;
              if (form == 3) equations.clip = 0.8f;
              const bool backwards = direction == "reverse" || way == 1;
              for (int64_t row = 0; row < n; ++row) {
                const int64_t length = full ? lengths[row] : t;
                std::vector<double> hidden(h), cell(h);
                for (int64_t j = 0; j < h && full; ++j) {
                  hidden[j] = part(5)[row * h + j];
                  if (type == "LSTM") cell[j] = part(6)[row * h + j];
                }
                for (int64_t step = 0; step < t; ++step) {
                  const int64_t at = step < length && backwards ? length - 1 - step : step;
                  if (step < length) equations.step(x.as<float>().data() + (at * n + row) * i, hidden, cell);
                  for (int64_t j = 0; j < h; ++j, ++checked)
                    ASSERT_NEAR(plain[((at * d + way) * n + row) * h + j], step < length ? hidden[j] : 0, 2e-5)
                        << what << " at " << at << " " << row << " " << j;
                }
              }
            }
            for (const int threads : {1, 2}) {
              const auto packed =
                  values_of<float>(run_packed_product(type, "", operands, DType::float32, dims, attributes, threads));
              for (size_t e = 0; e < plain.size(); ++e)
                ASSERT_NEAR(packed[e], plain[e], 2e-5) << what << " packed " << e;
            }
          }
  EXPECT_GT(checked, 100000);
}

}  // namespace
}  // namespace tessera::kernels

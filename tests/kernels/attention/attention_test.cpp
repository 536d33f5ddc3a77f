#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "kernels/random_tensors.h"
#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::IsEmpty;
using ::testing::Pointwise;

struct Extents {
  int64_t batch, q_heads, kv_heads, queries, keys, width, value_width;

  Dims q() const { return {batch, q_heads, queries, width}; }
  Dims k() const { return {batch, kv_heads, keys, width}; }
  Dims v() const { return {batch, kv_heads, keys, value_width}; }
  Dims y() const { return {batch, q_heads, queries, value_width}; }
};

/// softmax(scale · q kᵀ + bias) v in double; `bias(b, h, i, j)` may be -infinity. A row of which is all -infinity gives
/// 0.
template <typename Bias>
std::vector<float> attended(const Extents& e, const Tensor& q, const Tensor& k, const Tensor& v, Bias bias,
                            double softcap = 0) {
  std::vector<float> y;
  for (int64_t b = 0; b < e.batch; ++b)
    for (int64_t h = 0; h < e.q_heads; ++h)
      for (int64_t i = 0; i < e.queries; ++i) {
        const int64_t head = b * e.kv_heads + h / (e.q_heads / e.kv_heads);
        std::vector<double> scores(e.keys);
        double most = -infinity, sum = 0;
        for (int64_t j = 0; j < e.keys; ++j) {
          double dot = 0;
          for (int64_t d = 0; d < e.width; ++d)
            dot += double(q.as<float>()[((b * e.q_heads + h) * e.queries + i) * e.width + d]) *
                   k.as<float>()[(head * e.keys + j) * e.width + d];
          dot /= std::sqrt(double(e.width));
          if (softcap > 0) dot = softcap * std::tanh(dot / softcap);
          scores[j] = static_cast<float>(dot) + bias(b, h, i, j);
          most = std::max(most, scores[j]);
        }
        for (double& score : scores) sum += score = most == -infinity ? 0 : std::exp(score - most);
        for (int64_t d = 0; d < e.value_width; ++d) {
          double result = 0;
          for (int64_t j = 0; j < e.keys; ++j)
            result += scores[j] * v.as<float>()[(head * e.keys + j) * e.value_width + d];
          y.push_back(static_cast<float>(sum == 0 ? 0 : result / sum));
        }
      }
  return y;
}

float no_bias(int64_t, int64_t, int64_t, int64_t) {
  return 0;
}

/// [batch, heads, positions, width] as [batch, positions, heads·width].
Tensor three_dimensional(const Tensor& x) {
  std::vector<float> values;
  for (int64_t b = 0; b < x.dims[0]; ++b)
    for (int64_t p = 0; p < x.dims[2]; ++p)
      for (int64_t h = 0; h < x.dims[1]; ++h)
        for (int64_t d = 0; d < x.dims[3]; ++d)
          values.push_back(x.as<float>()[((b * x.dims[1] + h) * x.dims[2] + p) * x.dims[3] + d]);
  return floats({x.dims[0], x.dims[2], x.dims[1] * x.dims[3]}, values);
}

struct Operands {
  Tensor q, k, v;
};

Operands random_operands(const Extents& e, uint32_t seed) {
  RandomTensors random(seed);
  return {random.normal_floats(e.q()), random.normal_floats(e.k()), random.normal_floats(e.v())};
}

const std::vector<Extents>& all_extents() {
  static const std::vector<Extents> all{
      {1, 1, 1, 1, 1, 1, 1},  {2, 3, 3, 5, 7, 8, 8},       {1, 4, 2, 70, 130, 16, 16},
      {1, 6, 1, 3, 65, 9, 5}, {2, 2, 2, 129, 129, 64, 32}, {1, 8, 2, 1, 300, 32, 32},
  };
  return all;
}

TEST(Attention, WeighsValuesBySimilarity) {
  for (const Extents& e : all_extents()) {
    const auto [q, k, v] = random_operands(e, 41);
    const auto expected = attended(e, q, k, v, no_bias);
    EXPECT_THAT(values_of<float>(run_kernel_one("Attention", {q, k, v}, DType::float32, e.y(), {.threads = 2})),
                Pointwise(FloatNear(4e-6f), expected));
    const Tensor flat = run_kernel_one("Attention", {three_dimensional(q), three_dimensional(k), three_dimensional(v)},
                                       DType::float32, {e.batch, e.queries, e.q_heads * e.value_width},
                                       {.attributes = {{"q_num_heads", e.q_heads}, {"kv_num_heads", e.kv_heads}}});
    EXPECT_THAT(values_of<float>(flat),
                Pointwise(FloatNear(4e-6f), values_of<float>(three_dimensional(floats(e.y(), expected)))));
  }
}

TEST(Attention, LetsACausalQuerySeeOnlyWhatCameBefore) {
  for (const Extents& e : all_extents()) {
    const auto [q, k, v] = random_operands(e, 42);
    auto causal = [](int64_t, int64_t, int64_t i, int64_t j) { return j <= i ? 0 : -infinity; };
    EXPECT_THAT(values_of<float>(run_kernel_one("Attention", {q, k, v}, DType::float32, e.y(),
                                                {.attributes = {{"is_causal", int64_t{1}}}})),
                Pointwise(FloatNear(4e-6f), attended(e, q, k, v, causal)));
  }
}

// A sink is like one key more, whose value is zero. Few queries and many go through other loops.
TEST(Attention, GivesSinksTheirShare) {
  for (const Extents& e : all_extents()) {
    const auto [q, k, v] = random_operands(e, 48);
    std::vector<float> sinks(e.q_heads);
    for (int64_t h = 0; h < e.q_heads; ++h) sinks[h] = h == 1 ? -infinity : h == 2 ? infinity : 0.7F * float(h) - 1;
    Extents more = e;
    ++more.keys;
    const auto longer = [&](const Tensor& x, const Dims& dims) {
      const int64_t row = dims[3], rows = dims[2];
      std::vector<float> all;
      for (int64_t at = 0; at < count_of(dims); ++at)
        all.push_back(at / row % rows == rows - 1 ? 0 : x.as<float>()[at - (at / (row * rows)) * row]);
      return floats(dims, all);
    };
    const auto sink = [&](int64_t, int64_t h, int64_t, int64_t j) {
      return j < e.keys ? 0 : std::min(sinks[h], std::numeric_limits<float>::max());
    };
    EXPECT_THAT(values_of<float>(run_kernel_one("Attention", {q, k, v, {}, {}, {}, {}, {}, floats({e.q_heads}, sinks)},
                                                DType::float32, e.y(), {.threads = 2})),
                Pointwise(FloatNear(4e-6f), attended(more, q, longer(k, more.k()), longer(v, more.v()), sink)));
  }
  // A row that sees no key is zero.
  const Tensor hidden = run_kernel_one("Attention",
                                       {floats({1, 1, 1, 1}, {1}),
                                        floats({1, 1, 1, 1}, {1}),
                                        floats({1, 1, 1, 1}, {5}),
                                        Tensor::zeros(DType::boolean, {1, 1}),
                                        {},
                                        {},
                                        {},
                                        {},
                                        floats({1}, {2})},
                                       DType::float32, {1, 1, 1, 1}, {});
  EXPECT_THAT(values_of<float>(hidden), ElementsAre(0));
}

TEST(Attention, SlidesAWindowAndCapsScores) {
  const Extents e{1, 2, 1, 80, 90, 8, 16};
  const auto [q, k, v] = random_operands(e, 43);
  auto window = [](int64_t, int64_t, int64_t i, int64_t j) { return j >= i - 3 && j <= i + 1 ? 0 : -infinity; };
  EXPECT_THAT(
      values_of<float>(run_kernel_one(
          "Attention", {q, k, v}, DType::float32, e.y(),
          {.attributes = {{"left_window_size", int64_t{3}}, {"right_window_size", int64_t{1}}, {"softcap", 0.5f}}})),
      Pointwise(FloatNear(4e-6f), attended(e, q, k, v, window, 0.5)));
}

TEST(Attention, RepeatsMasksAndMasksKeysBeyondThem) {
  const Extents e{2, 4, 2, 6, 70, 8, 8};
  const auto [q, k, v] = random_operands(e, 44);
  RandomTensors random(45);
  for (const Dims& dims :
       {Dims{70}, Dims{6, 70}, Dims{4, 1, 70}, Dims{2, 1, 6, 70}, Dims{2, 4, 6, 70}, Dims{1, 1, 1, 66}}) {
    const auto values = random.normal(count_of(dims));
    Dims full = dims;
    full.insert(full.begin(), 4 - full.size(), 1);
    auto at = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
      return (((full[0] == 1 ? 0 : b) * full[1] + (full[1] == 1 ? 0 : h)) * full[2] + (full[2] == 1 ? 0 : i)) *
                 full[3] +
             j;
    };
    auto added = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
      return j < full[3] ? values[at(b, h, i, j)] : -infinity;
    };
    EXPECT_THAT(values_of<float>(run_kernel_one("Attention", {q, k, v, floats(dims, values)}, DType::float32, e.y())),
                Pointwise(FloatNear(4e-6f), attended(e, q, k, v, added)));
    std::vector<int> chosen;
    for (float value : values) chosen.push_back(value > 0);
    auto selected = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
      return j < full[3] && chosen[at(b, h, i, j)] ? 0 : -infinity;
    };
    EXPECT_THAT(values_of<float>(run_kernel_one("Attention", {q, k, v, booleans(dims, chosen)}, DType::float32, e.y())),
                Pointwise(FloatNear(4e-6f), attended(e, q, k, v, selected)));
  }
}

TEST(Attention, AveragesWhereAFiniteMaskHidesEverythingAndGivesZerosWhereABooleanDoes) {
  const Extents e{1, 1, 1, 2, 100, 4, 1};
  auto [q, k, v] = random_operands(e, 46);
  std::vector<float> ramp(100), hidden(200, 0);
  for (int i = 0; i < 100; ++i) ramp[i] = static_cast<float>(i);
  std::fill_n(hidden.begin(), 100, -std::numeric_limits<float>::max());
  v = floats(e.v(), ramp);
  const auto average =
      values_of<float>(run_kernel_one("Attention", {q, k, v, floats({2, 100}, hidden)}, DType::float32, e.y()));
  EXPECT_NEAR(average[0], 49.5, 1e-4);
  std::vector<int> none(200, 1);
  std::fill_n(none.begin(), 100, 0);
  const auto zero =
      values_of<float>(run_kernel_one("Attention", {q, k, v, booleans({2, 100}, none)}, DType::float32, e.y()));
  EXPECT_EQ(zero[0], 0);
  EXPECT_NEAR(zero[1], average[1], 1e-4);
}

TEST(Attention, ContinuesFromACache) {
  const Extents e{2, 4, 2, 3, 9, 8, 4};  // 6 keys cached, 3 fresh
  const auto [q, k, v] = random_operands(e, 47);
  auto positions = [](const Tensor& x, int64_t begin, int64_t end) {
    std::vector<float> values;
    const int64_t heads = x.dims[0] * x.dims[1], row = x.dims[2] * x.dims[3];
    for (int64_t h = 0; h < heads; ++h)
      values.insert(values.end(), x.as<float>().begin() + h * row + begin * x.dims[3],
                    x.as<float>().begin() + h * row + end * x.dims[3]);
    return floats({x.dims[0], x.dims[1], end - begin, x.dims[3]}, values);
  };
  const std::vector<Tensor> inputs{q,  positions(k, 6, 9), positions(v, 6, 9),
                                   {}, positions(k, 0, 6), positions(v, 0, 6)};
  const RunOptions causal{.attributes = {{"is_causal", int64_t{1}}}};
  auto bias = [](int64_t, int64_t, int64_t i, int64_t j) { return j <= i + 6 ? 0 : -infinity; };
  const auto expected = attended(e, q, k, v, bias);
  const auto results = run_kernel("Attention", inputs,
                                  {{DType::float32, e.y()}, {DType::float32, e.k()}, {DType::float32, e.v()}}, causal);
  EXPECT_THAT(values_of<float>(results[0]), Pointwise(FloatNear(4e-6f), expected));
  EXPECT_EQ(values_of<float>(results[1]), values_of<float>(k));
  EXPECT_EQ(values_of<float>(results[2]), values_of<float>(v));
  EXPECT_THAT(values_of<float>(run_kernel_one("Attention", inputs, DType::float32, e.y(), causal)),
              Pointwise(FloatNear(4e-6f), expected));
}

TEST(Attention, StopsAtEachSequencesLength) {
  const Extents e{2, 2, 2, 4, 10, 8, 8};
  const auto [q, k, v] = random_operands(e, 48);
  const std::vector<int64_t> lengths{3, 10};
  auto bias = [&](int64_t b, int64_t, int64_t i, int64_t j) {
    return j < lengths[b] && j <= i + lengths[b] - e.queries ? 0 : -infinity;
  };
  EXPECT_THAT(values_of<float>(run_kernel_one("Attention", {q, k, v, {}, {}, {}, ints({2}, lengths)}, DType::float32,
                                              e.y(), {.attributes = {{"is_causal", int64_t{1}}}})),
              Pointwise(FloatNear(4e-6f), attended(e, q, k, v, bias)));
}

TEST(Attention, ComputesSixteenBitsInFloat32) {
  const Extents e{1, 4, 2, 20, 90, 16, 24};
  RandomTensors random(49);
  for (DType dtype : {DType::bfloat16, DType::float16}) {
    const Tensor q = narrowed(dtype, e.q(), random.normal(count_of(e.q())));
    const Tensor k = narrowed(dtype, e.k(), random.normal(count_of(e.k())));
    const Tensor v = narrowed(dtype, e.v(), random.normal(count_of(e.v())));
    const auto wide =
        run_kernel_one("Attention", {floats(e.q(), widened(q)), floats(e.k(), widened(k)), floats(e.v(), widened(v))},
                       DType::float32, e.y());
    EXPECT_EQ(widened(run_kernel_one("Attention", {q, k, v}, dtype, e.y())),
              widened(narrowed(dtype, e.y(), values_of<float>(wide))));
  }
}

// Few queries go another way than many.
TEST(Attention, GivesAQueryTheSameBitsInAnyBlock) {
  const Extents e{1, 1, 1, 100, 150, 16, 16};
  const auto [q, k, v] = random_operands(e, 50);
  const auto last = [&](int64_t count) {
    const std::vector<float> queries(q.as<float>().end() - count * 16, q.as<float>().end());
    const auto y = values_of<float>(
        run_kernel_one("Attention", {floats({1, 1, count, 16}, queries), k, v}, DType::float32, {1, 1, count, 16}));
    return std::vector<float>(y.end() - 16, y.end());
  };
  EXPECT_EQ(last(5), last(100));
  EXPECT_EQ(last(1), last(4));
  EXPECT_THAT(last(1), Pointwise(FloatNear(1e-6f), last(100)));
}

// Ranks may hold some of the heads that share keys, or all.
TEST(Attention, GivesAHeadTheSameBitsBesideAnyOthers) {
  for (const int64_t queries : {1, 4, 5}) {
    const Extents e{1, 70, 1, queries, 300, 16, 16};
    const auto [q, k, v] = random_operands(e, 55);
    const auto all = values_of<float>(run_kernel_one("Attention", {q, k, v}, DType::float32, e.y()));
    for (const int64_t head : {0, 69}) {
      const auto at = q.as<float>().begin() + head * queries * 16;
      const Tensor own = floats({1, 1, queries, 16}, std::vector<float>(at, at + queries * 16));
      EXPECT_EQ(values_of<float>(run_kernel_one("Attention", {own, k, v}, DType::float32, own.dims)),
                std::vector<float>(all.begin() + head * queries * 16, all.begin() + (head + 1) * queries * 16));
    }
  }
}

// Keys in several parts, of which some are behind a sequence's end or before a window, and tiles that are not full;
// heads that share keys, of widths that fill no vector; masks.
TEST(Attention, OfFewQueriesReadsKeysInParts) {
  const std::vector<int64_t> lengths{3, 700, 257};
  for (const auto& [width, value_width] : {std::pair<int64_t, int64_t>{16, 16}, {20, 7}})
    // In the last case, the rows of one key head fill several blocks, each with windows of its own.
    for (const auto& [q_heads, kv_heads, queries] : {std::array<int64_t, 3>{10, 2, 1}, {10, 2, 2}, {22, 1, 3}})
      for (const int64_t window : {-1, 5, 300}) {
        SCOPED_TRACE(fmt::format("widths {} and {}, {} heads, {} queries, window {}", width, value_width, q_heads,
                                 queries, window));
        const Extents e{3, q_heads, kv_heads, queries, 700, width, value_width};
        const auto [q, k, v] = random_operands(e, 53);
        const std::vector<float> added = RandomTensors(54).normal(e.keys);
        Attributes attributes = {{"is_causal", int64_t{1}}};
        if (window >= 0) attributes["left_window_size"] = window;
        const auto bias = [&](int64_t b, int64_t, int64_t i, int64_t j) {
          const int64_t here = i + lengths[b] - e.queries;
          const bool seen = j < lengths[b] && j <= here && (window < 0 || j >= here - window);
          return seen ? added[j] : -infinity;
        };
        const std::vector<Tensor> operands{q, k, v, floats({1, e.keys}, added), {}, {}, ints({3}, lengths)};
        for (const int threads : {1, 3})
          EXPECT_THAT(values_of<float>(run_kernel_one("Attention", operands, DType::float32, e.y(),
                                                      {.attributes = attributes, .threads = threads})),
                      Pointwise(FloatNear(8e-6f), attended(e, q, k, v, bias)));
      }
}

TEST(Attention, TakesRanksWithoutHeadsBatchesOrKeys) {
  EXPECT_THAT(values_of<float>(run_kernel_one(
                  "Attention", {floats({1, 0, 3, 8}, {}), floats({1, 0, 5, 8}, {}), floats({1, 0, 5, 8}, {})},
                  DType::float32, {1, 0, 3, 8})),
              IsEmpty());
  EXPECT_THAT(values_of<float>(run_kernel_one(
                  "Attention", {floats({1, 3, 0}, {}), floats({1, 5, 0}, {}), floats({1, 5, 0}, {})}, DType::float32,
                  {1, 3, 0}, {.attributes = {{"q_num_heads", int64_t{0}}, {"kv_num_heads", int64_t{0}}}})),
              IsEmpty());
  EXPECT_THAT(values_of<float>(run_kernel_one(
                  "Attention", {floats({1, 1, 2, 1}, {1, 2}), floats({1, 1, 0, 1}, {}), floats({1, 1, 0, 1}, {})},
                  DType::float32, {1, 1, 2, 1})),
              ElementsAre(0, 0));
}

TEST(Attention, SaysThatScoresAreNotToBeHad) {
  const Tensor x = floats({1, 1, 1, 1}, {1});
  EXPECT_THAT(
      [&] {
        run_kernel("Attention", {x, x, x}, {{DType::float32, x.dims}, {}, {}, {DType::float32, x.dims}});
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("qk_matmul_output")));
}

TEST(RotaryEmbedding, RotatesHalvesOrNeighbours) {
  // One position, rotated by 90 degrees in the first pair, by 180 in the second; the last element passes.
  const Tensor x = floats({1, 1, 1, 5}, {1, 2, 3, 4, 9}), cosine = floats({1, 1, 2}, {0, -1}),
               sine = floats({1, 1, 2}, {1, 0});
  RunOptions options{.attributes = {{"rotary_embedding_dim", int64_t{4}}}};
  EXPECT_THAT(values_of<float>(run_kernel_one("RotaryEmbedding", {x, cosine, sine}, DType::float32, x.dims, options)),
              ElementsAre(-3, -2, 1, -4, 9));
  options.attributes["interleaved"] = int64_t{1};
  EXPECT_THAT(values_of<float>(run_kernel_one("RotaryEmbedding", {x, cosine, sine}, DType::float32, x.dims, options)),
              ElementsAre(-2, 1, -3, -4, 9));
}

TEST(RotaryEmbedding, ChoosesCacheRowsByPositionInBothForms) {
  const Tensor cosine = floats({3, 1}, {1, 0, -1}), sine = floats({3, 1}, {0, 1, 0}), ids = ints({1, 2}, {2, 1});
  const Tensor four = floats({1, 2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_THAT(values_of<float>(run_kernel_one("RotaryEmbedding", {four, cosine, sine, ids}, DType::float32, four.dims,
                                              {.in_place = 0})),
              ElementsAre(-1, -2, -4, 3, -5, -6, -8, 7));
  const Tensor three = three_dimensional(four);
  EXPECT_THAT(values_of<float>(run_kernel_one("RotaryEmbedding", {three, cosine, sine, ids}, DType::float32, three.dims,
                                              {.attributes = {{"num_heads", int64_t{2}}}})),
              ElementsAre(-1, -2, -5, -6, -4, 3, -8, 7));
  EXPECT_THAT(
      [&] {
        run_kernel_one("RotaryEmbedding", {four, cosine, sine, ints({1, 2}, {0, 3})}, DType::float32, four.dims);
      },
      testing::Throws<Error>(
          testing::AllOf(testing::Property(&Error::what, testing::HasSubstr("position 3 lies outside")),
                         testing::Property(&Error::kind, ErrorKind::user))));
}

}  // namespace
}  // namespace tessera::kernels

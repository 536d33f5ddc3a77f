#include "tessera/ir/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/random_tensors.h"
#include "kernels/run_kernel.h"
#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

Tensor run_experts(const std::string& type, std::vector<Tensor> operands, Dims dims, Attributes attributes = {},
                   std::map<int, View> views = {}) {
  return run_kernel_one(
      type, operands, DType::float32, std::move(dims),
      {.attributes = std::move(attributes), .domain = std::string(kExpertsDomain), .views = std::move(views)});
}

// Two experts of one element: 2x·3 and 5x·7.
const Tensor kGate = floats({2, 1, 1}, {2, 5}), kDown = floats({2, 1, 1}, {3, 7});

TEST(Experts, add_up_what_each_token_chooses) {
  const Tensor x = floats({3, 1}, {1, 10, 100});
  const Tensor choices = ints({3, 2}, {0, 1, 1, -2, 1, 1});  // counted from the end, too; twice the same
  const Tensor weights = floats({3, 2}, {1, 1, 2, 0, 1, 1});
  const Tensor y = run_experts("Experts", {x, choices, weights, kGate, kDown}, {3, 1});
  EXPECT_THAT(values_of<float>(y), ElementsAre(6 + 35, 2 * 350, 7000));
}

TEST(Experts, may_be_chosen_by_nobody_or_have_nothing_to_choose) {
  const Tensor none =
      run_experts("Experts", {floats({0, 1}, {}), ints({0, 1}, {}), floats({0, 1}, {}), kGate, kDown}, {0, 1});
  EXPECT_EQ(none.count(), 0);
  const Tensor one =
      run_experts("Experts", {floats({1, 1}, {1}), ints({1, 1}, {1}), floats({1, 1}, {1}), kGate, kDown}, {1, 1});
  EXPECT_THAT(values_of<float>(one), ElementsAre(35));
  // No hidden element, as a rank may have: the bias counts.
  const Tensor bias = run_experts("Experts",
                                  {floats({1, 1}, {1}), ints({1, 1}, {1}), floats({1, 1}, {2}), floats({2, 1, 0}, {}),
                                   floats({2, 0, 1}, {}), floats({2, 0}, {}), floats({2, 1}, {4, 9})},
                                  {1, 1});
  EXPECT_THAT(values_of<float>(bias), ElementsAre(18));
}

TEST(Experts, shards_add_up_to_the_whole) {
  const Tensor x = floats({2, 1}, {1, 10}), choices = ints({2, 2}, {0, 2, 1, -1}),
               weights = floats({2, 2}, {1, 1, 1, 1});
  const auto shard = [&](const Tensor& gate, const Tensor& down, int64_t offset) {
    return values_of<float>(run_experts(
        "ExpertsShard", {x, choices, weights, gate, down, {}, {}, {}, {}, ints({}, {offset}), ints({}, {3})}, {2, 1}));
  };
  EXPECT_THAT(shard(kGate, kDown, 0), ElementsAre(6, 350));
  EXPECT_THAT(shard(floats({1, 1, 1}, {1}), floats({1, 1, 1}, {1}), 2), ElementsAre(1, 10));
  const auto nothing = shard(floats({0, 1, 1}, {}), floats({0, 1, 1}, {}), 3);
  EXPECT_THAT(nothing, Each(0.0F));
  EXPECT_TRUE(std::signbit(nothing[0])) << "0 + -0 is 0, -0 + -0 is -0";
}

TEST(Experts, refuse_a_choice_that_is_no_expert) {
  try {
    run_experts("Experts", {floats({1, 1}, {1}), ints({1, 1}, {2}), floats({1, 1}, {1}), kGate, kDown}, {1, 1});
    FAIL() << "it was computed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the index 2 is outside [-2, 2)"));
  }
}

TEST(Experts, bound_what_a_gated_unit_multiplies) {
  // Pairs of columns (g, u): (9, -9), with limit 4 and beta 1, make 4 · (-4 + 1).
  const Tensor gate = floats({1, 1, 2}, {9, -9});
  const std::vector<Tensor> operands = {floats({1, 1}, {1}), ints({1, 1}, {0}), floats({1, 1}, {1}), gate,
                                        floats({1, 1, 1}, {1})};
  for (const std::string gated : {"halves", "interleaved"}) {
    const Tensor y = run_experts("Experts", operands, {1, 1}, {{"gated", gated}, {"limit", 4.0F}, {"beta", 1.0F}});
    EXPECT_THAT(values_of<float>(y), ElementsAre(-12)) << gated;
  }
}

// Two experts' matrices of codes, and the numbers that they are.
struct Codes {
  Tensor codes, scales, zeros, numbers;
};

Codes random_codes(RandomTensors& random, int64_t rows, int64_t columns, int64_t blocks, int64_t bits, bool has_zeros) {
  const int64_t half = int64_t{1} << (bits - 1);
  const auto drawn = [&](int64_t count) {
    std::vector<uint8_t> codes;
    for (const float x : random.integers(count, static_cast<int>(half - 1)))
      codes.push_back(static_cast<uint8_t>(static_cast<int64_t>(x) + half));
    return codes;
  };
  const std::vector<uint8_t> codes = drawn(2 * columns * rows), zeros = drawn(2 * columns * blocks);
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < codes.size(); i += static_cast<size_t>(8 / bits))
    bytes.push_back(static_cast<uint8_t>(bits == 8 ? codes[i] : codes[i] | codes[i + 1] << 4));
  const std::vector<float> scales = random.normal(2 * columns * blocks);
  std::vector<float> numbers(codes.size());
  for (int64_t e = 0; e < 2; ++e)
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t l = 0; l < rows; ++l) {
        const int64_t column = e * columns + j;
        const auto block = static_cast<size_t>(column * blocks + l * blocks / rows);
        const int64_t code = codes[static_cast<size_t>(column * rows + l)];
        numbers[static_cast<size_t>((e * rows + l) * columns + j)] =
            static_cast<float>(code - (has_zeros ? zeros[block] : half)) * scales[block];
      }
  const auto of_blocks = [&](const std::vector<uint8_t>& all) {
    return Tensor::of(DType::uint8, {2, columns, blocks}, all);
  };
  return {Tensor::of(DType::uint8, {2, columns, rows * bits / 8}, bytes), floats({2, columns, blocks}, scales),
          has_zeros ? of_blocks(zeros) : Tensor{}, floats({2, rows, columns}, numbers)};
}

// By tiles of one row and of many, with blocks that do and do not fill a vector, and columns that do not fill a panel.
TEST(Experts, multiply_by_codes_as_by_the_numbers_that_they_are) {
  constexpr int64_t kRows = 64, kHidden = 80, kOut = 5;
  RandomTensors random(3);
  for (const int64_t tokens : {1, 3, 40})
    for (const int64_t bits : {4, 8})
      for (const int64_t blocks : {4, 2, 1})
        for (const bool has_zeros : {false, true}) {
          SCOPED_TRACE(std::to_string(tokens) + " tokens, " + std::to_string(bits) + " bits, " +
                       std::to_string(blocks) + " blocks" + (has_zeros ? ", zero points" : ""));
          const Codes gate = random_codes(random, kRows, kHidden, blocks, bits, has_zeros),
                      up = random_codes(random, kRows, kHidden, blocks, bits, has_zeros),
                      down = random_codes(random, kHidden, kOut, 1, 12 - bits, !has_zeros);
          std::vector<int64_t> chosen;
          for (int64_t t = 0; t < tokens; ++t) chosen.push_back(t % 3 == 0 ? 1 : 0);
          const Tensor x = random.normal_floats({tokens, kRows}), choices = ints({tokens, 1}, chosen),
                       weights = random.normal_floats({tokens, 1});
          const Attributes attributes = {{"gated", std::string("apart")},
                                         {"block_size", kRows / blocks},
                                         {"gate_bits", bits},
                                         {"up_bits", bits},
                                         {"down_bits", 12 - bits}};
          const auto wanted = values_of<float>(
              run_experts("Experts", {x, choices, weights, gate.numbers, down.numbers, {}, {}, up.numbers},
                          {tokens, kOut}, attributes));
          const auto found = values_of<float>(run_experts("Experts",
                                                          {x,
                                                           choices,
                                                           weights,
                                                           gate.codes,
                                                           down.codes,
                                                           {},
                                                           {},
                                                           up.codes,
                                                           {},
                                                           {},
                                                           {},
                                                           gate.scales,
                                                           gate.zeros,
                                                           down.scales,
                                                           down.zeros,
                                                           up.scales,
                                                           up.zeros},
                                                          {tokens, kOut}, attributes));
          float largest = 0;
          for (const float value : wanted) largest = std::max(largest, std::abs(value));
          for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-5F * largest) << i;
        }
}

// A rank may have no hidden elements: no columns of the gate, and none of a sum's terms.
TEST(Experts, of_codes_may_have_nothing_to_add_up) {
  const auto codes = [](Dims dims) { return Tensor::zeros(DType::uint8, std::move(dims)); };
  for (const int64_t tokens : {1, 40}) {
    const Tensor choices = ints({tokens, 1}, std::vector<int64_t>(static_cast<size_t>(tokens), 1)),
                 weights = floats({tokens, 1}, std::vector<float>(static_cast<size_t>(tokens), 1)),
                 x = floats({tokens, 32}, std::vector<float>(static_cast<size_t>(tokens * 32), 1));
    const Tensor y = run_experts("Experts",
                                 {x,
                                  choices,
                                  weights,
                                  codes({2, 0, 16}),
                                  codes({2, 3, 0}),
                                  {},
                                  floats({2, 3}, {1, 2, 3, 4, 5, 6}),
                                  {},
                                  {},
                                  {},
                                  {},
                                  floats({2, 0, 2}, {}),
                                  {},
                                  floats({2, 3, 0}, {})},
                                 {tokens, 3}, {{"block_size", int64_t{16}}});
    const auto all = values_of<float>(y);
    EXPECT_THAT(std::vector<float>(all.end() - 3, all.end()), ElementsAre(4, 5, 6)) << tokens;
  }
}

// Rows get the same bits in any tile, at any place of it.
TEST(Experts, give_a_token_the_same_bits_beside_any_others) {
  constexpr int64_t kTokens = 70, kIn = 33, kHidden = 20, kOut = 17;
  RandomTensors random(5);
  const Tensor x = random.normal_floats({kTokens, kIn}), gate = random.normal_floats({2, kIn, kHidden}),
               down = random.normal_floats({2, kHidden, kOut});
  std::vector<int64_t> backwards, all(kTokens, 1);
  std::vector<float> reversed, ones(kTokens, 1);
  for (int64_t t = kTokens; t-- > 0;)
    for (int64_t i = 0; i < kIn; ++i) reversed.push_back(x.as<float>()[static_cast<size_t>(t * kIn + i)]);
  const Attributes swish = {{"activation", std::string("swish")}};
  const auto forward = values_of<float>(run_experts(
      "Experts", {x, ints({kTokens, 1}, all), floats({kTokens, 1}, ones), gate, down}, {kTokens, kOut}, swish));
  const auto backward = values_of<float>(run_experts(
      "Experts", {floats({kTokens, kIn}, reversed), ints({kTokens, 1}, all), floats({kTokens, 1}, ones), gate, down},
      {kTokens, kOut}, swish));
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t o = 0; o < kOut; ++o)
      EXPECT_EQ(forward[static_cast<size_t>(t * kOut + o)],
                backward[static_cast<size_t>((kTokens - 1 - t) * kOut + o)]);
}

TEST(Experts, read_matrices_that_lie_by_columns) {
  const Tensor turned = floats({2, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});  // [experts, hidden, in]
  const Tensor upright = floats({2, 3, 2}, {1, 4, 2, 5, 3, 6, 7, 10, 8, 11, 9, 12});
  const Tensor x = floats({2, 3}, {1, 0, 2, 3, 1, 1}), choices = ints({2, 1}, {1, 0}), weights = floats({2, 1}, {1, 2}),
               down = floats({2, 2, 1}, {1, 2, 3, 4});
  const auto wanted = values_of<float>(run_experts("Experts", {x, choices, weights, upright, down}, {2, 1}));
  const View by_columns{{2, 3, 2}, {6, 1, 3}, 0};
  const auto found =
      values_of<float>(run_experts("Experts", {x, choices, weights, turned, down}, {2, 1}, {}, {{3, by_columns}}));
  EXPECT_EQ(found, wanted);
}

}  // namespace
}  // namespace tessera::kernels

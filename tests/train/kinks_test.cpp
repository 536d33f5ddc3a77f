// Where a function has no derivative, or a formula for it divides by 0: PyTorch's gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "train/differentiated.h"

namespace tessera::train {
namespace {

using property::Builder;
using testing::DoubleEq;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;
using Numbers = std::vector<double>;

struct Operand {
  Dims dims;
  Numbers elements;
};

// The gradients of Σ weight · result by each operand. Operands beyond the floats are made by `more`.
std::vector<Numbers> gradients_at(std::string_view type, const std::vector<Operand>& operands, const Numbers& weights,
                                  std::vector<Attribute> attributes = {},
                                  const std::function<std::vector<Value*>(Builder&)>& more = {}) {
  Builder builder{std::string(type)};
  std::vector<Value*> values;
  for (const Operand& operand : operands)
    values.push_back(builder.input(fmt::format("{}", fmt::join(operand.dims, " "))));
  if (more)
    for (Value* value : more(builder)) values.push_back(value);
  builder.output(builder.node(type, values, std::move(attributes)));
  const property::Subject subject = builder.done();
  Differentiated made = differentiate(subject, {0}, DType::float64, Elements::given);
  for (size_t i = 0; i < operands.size(); ++i)
    made.backward.inputs[values[i]->name] = tensor_of(DType::float64, operands[i].dims, operands[i].elements);
  Tensor& weight = made.backward.inputs.at("loss.weight0");
  weight = tensor_of(DType::float64, weight.dims, weights);
  const auto results = run_on_one(made.backward);
  std::vector<Numbers> gradients;
  for (size_t i = 0; i < operands.size(); ++i) {
    const auto found = results.find("grad." + values[i]->name);
    gradients.push_back(found == results.end() ? Numbers{} : doubles_of(found->second));
  }
  return gradients;
}

Numbers gradient_at(std::string_view type, const Operand& operand, const Numbers& weights,
                    std::vector<Attribute> attributes = {},
                    const std::function<std::vector<Value*>(Builder&)>& more = {}) {
  return gradients_at(type, {operand}, weights, std::move(attributes), more).front();
}

std::function<std::vector<Value*>(Builder&)> along(std::vector<int64_t> axes) {
  return [axes](Builder& b) -> std::vector<Value*> { return {b.ints(axes)}; };
}

// The gradients of a ScatterElements of four updates to the places 0, 0, 1 and 1 of three elements, weighted by 6, 8
// and 5: by the elements and by the updates.
std::vector<Numbers> scattered_gradients_at(const std::string& reduction, const Numbers& data, const Numbers& updates) {
  Builder builder("ScatterElements");
  std::vector<Value*> operands = {
      builder.input("3"), builder.constant(Tensor::of<int64_t>(DType::int64, {4}, {0, 0, 1, 1})), builder.input("4")};
  builder.output(builder.node("ScatterElements", operands, {{"reduction", reduction}}));
  const property::Subject subject = builder.done();
  Differentiated made = differentiate(subject, {0}, DType::float64, Elements::given);
  made.backward.inputs[operands[0]->name] = tensor_of(DType::float64, {3}, data);
  made.backward.inputs[operands[2]->name] = tensor_of(DType::float64, {4}, updates);
  made.backward.inputs.at("loss.weight0") = tensor_of(DType::float64, {3}, {6, 8, 5});
  const auto results = run_on_one(made.backward);
  return {doubles_of(results.at("grad." + operands[0]->name)), doubles_of(results.at("grad." + operands[2]->name))};
}

TEST(Kinks, at_0_have_the_slope_0_or_that_of_the_negative_side) {
  const Operand x{{3}, {-1, 0, 1}};
  const Numbers w = {2, 3, 5};
  EXPECT_THAT(gradient_at("Relu", x, w), ElementsAre(0, 0, 5));
  EXPECT_THAT(gradient_at("Abs", x, w), ElementsAre(-2, 0, 5));
  EXPECT_THAT(gradient_at("LeakyRelu", x, w, {{"alpha", 0.5f}}), ElementsAre(1, 1.5, 5));
  EXPECT_THAT(gradients_at("PRelu", {x, {{1}, {0.5}}}, w), ElementsAre(ElementsAre(1, 1.5, 5), ElementsAre(-2)));
  EXPECT_THAT(gradient_at("ReduceL1", x, {2}, {}, along({0})), ElementsAre(-2, 0, 2));
}

TEST(Kinks, of_maxima_share_evenly) {
  EXPECT_THAT(gradients_at("Max", {{{3}, {1, 2, 3}}, {{3}, {1, 3, 2}}}, {2, 4, 6}),
              ElementsAre(ElementsAre(1, 0, 6), ElementsAre(1, 4, 0)));
  EXPECT_THAT(gradients_at("Min", {{{2}, {1, 1}}, {{1}, {1}}}, {2, 4}), ElementsAre(ElementsAre(1, 2), ElementsAre(3)));
  EXPECT_THAT(gradient_at("ReduceMax", {{2, 3}, {1, 3, 3, 2, 2, 2}}, {4, 6}, {}, along({1})),
              ElementsAre(0, 2, 2, 2, 2, 2));
  EXPECT_THAT(gradient_at("ReduceMin", {{4}, {1, 1, 5, 1}}, {6}, {}, along({0})), ElementsAre(2, 2, 0, 2));
}

TEST(Kinks, of_scattered_maxima_share_evenly) {
  EXPECT_THAT(scattered_gradients_at("max", {3, 1, 7}, {3, 3, 1, 0}),
              ElementsAre(ElementsAre(2, 4, 5), ElementsAre(2, 2, 4, 0)));
  EXPECT_THAT(scattered_gradients_at("min", {1, 2, 7}, {3, 1, 5, 2}),
              ElementsAre(ElementsAre(3, 4, 5), ElementsAre(0, 3, 0, 4)));
  EXPECT_THAT(scattered_gradients_at("mul", {2, 0, 7}, {0, 3, 0, 5}),
              ElementsAre(ElementsAre(0, 0, 5), ElementsAre(36, 0, 0, 0)));
  EXPECT_THAT(scattered_gradients_at("mul", {2, 0, 7}, {4, 3, 2, 5}),
              ElementsAre(ElementsAre(72, 80, 5), ElementsAre(36, 48, 0, 0)));
}

// The window's first maximum takes it all.
TEST(Kinks, of_max_pools_go_to_the_first_maximum) {
  EXPECT_THAT(gradient_at("MaxPool", {{1, 1, 4}, {3, 3, 3, 1}}, {1, 2, 4}, {{"kernel_shape", std::vector<int64_t>{2}}}),
              ElementsAre(1, 2, 4, 0));
}

TEST(Kinks, of_clip_pass_at_its_ends) {
  const auto ends = [](Builder& b) -> std::vector<Value*> { return {b.number(-1), b.number(1)}; };
  EXPECT_THAT(gradient_at("Clip", {{5}, {-2, -1, 0, 1, 2}}, {1, 2, 3, 4, 5}, {}, ends), ElementsAre(0, 2, 3, 4, 0));
  EXPECT_THAT(gradients_at("Clip", {{{4}, {-2, -1, 1, 2}}, {{}, {-1}}, {{}, {1}}}, {1, 2, 4, 8}),
              ElementsAre(ElementsAre(0, 2, 4, 0), ElementsAre(1), ElementsAre(8)));
}

TEST(Kinks, of_powers_of_0) {
  EXPECT_THAT(gradients_at("Pow", {{{4}, {0, 0, 0, 0}}, {{4}, {0, 1, 2, 3}}}, {1, 1, 1, 1}),
              ElementsAre(ElementsAre(0, 1, 0, 0), ElementsAre(0, 0, 0, 0)));
  EXPECT_THAT(
      gradient_at("Pow", {{2}, {-2, 3}}, {1, 1}, {}, [](Builder& b) -> std::vector<Value*> { return {b.number(2)}; }),
      ElementsAre(-4, 6));
}

TEST(Kinks, of_products_with_zeros) {
  EXPECT_THAT(gradient_at("ReduceProd", {{3, 3}, {2, 3, 4, 2, 0, 4, 0, 3, 0}}, {1, 1, 1}, {}, along({1})),
              ElementsAre(12, 8, 6, 0, 8, 0, 0, 0, 0));
}

TEST(Kinks, of_norms_at_0_are_0) {
  EXPECT_THAT(gradient_at("ReduceL2", {{2, 2}, {0, 0, 3, 4}}, {5, 5}, {}, along({1})),
              ElementsAre(0, 0, DoubleEq(3), DoubleEq(4)));
  EXPECT_THAT(gradient_at("LpNormalization", {{2}, {0, 0}}, {1, 2}), ElementsAre(0, 0));
  EXPECT_THAT(gradient_at("GlobalLpPool", {{1, 2, 2}, {0, 0, 3, 4}}, {5, 5}),
              ElementsAre(0, 0, DoubleEq(3), DoubleEq(4)));
  EXPECT_THAT(gradient_at("LpPool", {{1, 1, 3}, {0, 0, 1}}, {1, 2}, {{"kernel_shape", std::vector<int64_t>{2}}}),
              ElementsAre(0, 0, 2));
}

TEST(Kinks, of_what_is_constant_are_0) {
  for (std::string_view type : {"Sign", "Floor", "Ceil", "Round"})
    EXPECT_THAT(gradient_at(type, {{3}, {-1, 0, 0.3}}, {1, 2, 3}), ElementsAre()) << type;
}

// Extents of 0: gradients without elements, and zeros where a sum has no terms.
TEST(Kinks, of_nothing) {
  EXPECT_THAT(gradients_at("MatMul", {{{2, 0}, {}}, {{0, 3}, {}}}, Numbers(6, 1)),
              ElementsAre(ElementsAre(), ElementsAre()));
  EXPECT_THAT(gradients_at("MatMul", {{{0, 2}, {}}, {{2, 3}, Numbers(6, 7)}}, {}),
              ElementsAre(ElementsAre(), ElementsAre(0, 0, 0, 0, 0, 0)));
  EXPECT_THAT(gradients_at("Add", {{{0, 2}, {}}, {{2}, {1, 1}}}, {}), ElementsAre(ElementsAre(), ElementsAre(0, 0)));
}

// Rows of a mask that hide all keys, by infinities or by booleans, give zeros and no NaN.
TEST(Kinks, of_attention_that_sees_nothing_are_0) {
  const auto gradient_by = [](bool by_infinities) {
    Builder builder("Attention");
    std::vector<Value*> operands = {builder.input("1 2 2 4", property::Fill::unit),
                                    builder.input("1 2 3 4", property::Fill::unit),
                                    builder.input("1 2 3 4", property::Fill::unit)};
    const std::vector<uint8_t> seen = {1, 0, 1, 0, 0, 0};
    Value* booleans = builder.constant(Tensor::of<uint8_t>(DType::boolean, {2, 3}, seen));
    operands.push_back(booleans);
    if (by_infinities) {
      // A logarithm of 0, so that the infinity is not an operand that is replaced.
      Value* ones = builder.node("Cast", {booleans}, {{"to", static_cast<int64_t>(DType::float32)}});
      operands.back() = builder.node("Log", {ones});
    }
    builder.output(builder.node("Attention", operands));
    return run_on_one(differentiate(builder.done(), {0}, DType::float32, Elements::given).backward);
  };
  const auto booleans = gradient_by(false), infinities = gradient_by(true);
  EXPECT_EQ(booleans.size(), 4u);
  for (const auto& [name, expected] : booleans) {
    EXPECT_THAT(doubles_of(infinities.at(name)), Pointwise(DoubleNear(1e-6), doubles_of(expected))) << name;
    for (double element : doubles_of(expected)) EXPECT_TRUE(std::isfinite(element)) << name;
  }
}

}  // namespace
}  // namespace tessera::train

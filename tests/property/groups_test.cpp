// Nodes that one kernel runs together: fewer steps, and the results of one after the other.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "property/trial.h"

namespace tessera::property {
namespace {

using testing::ElementsAre;
using Ints = std::vector<int64_t>;
using Tensors = runtime::Executor::Tensors;

Tensors run(const Subject& subject, bool together, std::vector<std::string>* steps = nullptr) {
  runtime::ExecutorOptions options;
  options.threads_per_rank = 1;
  options.keep_all = !together;
  options.profile = true;
  runtime::Executor executor(compile(subject, {}, {}), options);
  Tensors outputs = executor.run(subject.inputs);
  if (steps)
    for (const runtime::StepInfo& step : executor.times()[0].steps) steps->push_back(step.op);
  return outputs;
}

// The steps of a run together, whose results must be those of a run apart.
std::vector<std::string> steps_of(const Subject& subject) {
  std::vector<std::string> steps;
  const Tensors actual = run(subject, true, &steps);
  for (const auto& [name, expected] : run(subject, false))
    EXPECT_EQ(difference(actual.at(name), expected, subject.bound), "") << name;
  return steps;
}

TEST(Groups, ProductTakesBiasActivationAndResidual) {
  Builder b("MatMul, Add, Relu, Add");
  Value* x = b.bind("b", 3).input("b 5 8");
  Value* product = b.node("MatMul", {x, b.weight("8 16")});
  Value* active = b.node("Relu", {b.node("Add", {b.weight("16"), product})});
  Subject subject = b.output(b.node("Add", {active, b.input("b 5 16")})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("MatMul+Add+Relu+Add"));
}

TEST(Groups, ActivationsKeepTheirAttributes) {
  const std::vector<std::pair<std::string, std::vector<Attribute>>> activations = {
      {"Gelu", {}},
      {"Gelu", {{"approximate", std::string("tanh")}}},
      {"Swish", {{"alpha", 1.5f}}},
      {"LeakyRelu", {{"alpha", 0.25f}}},
      {"Tanh", {}},
      {"Sigmoid", {}}};
  for (const auto& [type, attributes] : activations) {
    Builder b(type);
    Value* product = b.node("MatMul", {b.input("7 8", Fill::reals), b.weight("8 24", Fill::reals)});
    Subject subject = b.output(b.node(type, {product}, attributes)).done(kNormalized);
    EXPECT_THAT(steps_of(subject), ElementsAre("MatMul+" + type));
  }
}

TEST(Groups, BothHalvesOfAGatedUnitAreOneKernelEach) {
  Builder b("SwiGLU");
  Value* x = b.input("6 8", Fill::unit);
  Value* gate = b.node("Swish", {b.node("MatMul", {x, b.weight("8 32", Fill::unit)})});
  Value* up = b.node("MatMul", {x, b.weight("8 32", Fill::unit)});
  Subject subject = b.output(b.node("Mul", {gate, up})).done(kNormalized);
  EXPECT_EQ(steps_of(subject).size(), 2u);
}

TEST(Groups, ProductWithATransposedWeightReadsTheWeight) {
  Builder b("Gather, MatMul of the transposed table");
  Value* table = b.weight("40 16");
  Value* rows = b.node("Gather", {table, b.indices("2 3", 0, 40)});
  Subject subject = b.output(b.node("MatMul", {rows, b.node("Transpose", {table}, {{"perm", Ints{1, 0}}})})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("Gather", "MatMul"));
}

TEST(Groups, WhatOthersReadIsStored) {
  Builder b("MatMul, Relu, and the product itself");
  Value* product = b.node("MatMul", {b.input("4 8"), b.weight("8 16")});
  Value* active = b.node("Relu", {product});
  Subject subject = b.output(active).output(b.node("Neg", {product})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("MatMul", "Relu", "Neg"));
}

TEST(Groups, WhatBroadcastsTheProductIsNotPartOfIt) {
  Builder b("a column added, a larger tensor added");
  Value* product = b.node("MatMul", {b.input("4 8"), b.weight("8 16")});
  Value* column = b.node("Add", {product, b.weight("4 1")});
  Subject subject = b.output(b.node("Mul", {b.input("3 4 16"), column})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("MatMul", "Add", "Mul"));
}

TEST(Groups, SixteenBitProductsRoundOnce) {
  Builder b("bfloat16");
  Value* x = b.input("4 8", Fill::integers, DType::bfloat16);
  Value* product = b.node("MatMul", {x, b.weight("8 16", Fill::small, DType::bfloat16)});
  Value* sum = b.node("Add", {product, b.weight("16", Fill::small, DType::bfloat16)});
  Subject subject = b.output(b.node("Relu", {sum})).done(kBFloat16);
  EXPECT_THAT(steps_of(subject).size(), testing::AnyOf(1u, 3u)) << "together where the CPU multiplies bfloat16";
}

// Two convolutions, one pooling, a residual, channels that are no whole blocks.
TEST(Groups, ConvolutionsStayInBlocksOfChannels) {
  for (int64_t channels : {32, 20}) {
    Builder b("a residual block of " + std::to_string(channels));
    auto convolved = [&](Value* x, int64_t in) {
      return b.node("Conv", {x, b.weight(fmt::format("{} {} 3 3", channels, in)), b.weight(std::to_string(channels))},
                    {{"pads", Ints{1, 1, 1, 1}}});
    };
    Value* first = b.node("Relu", {convolved(b.input("2 3 9 8", Fill::small), 3)});
    Value* pooled = b.node("MaxPool", {first}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
    Value* sum = b.node("Add", {convolved(pooled, channels), pooled});
    Subject subject = b.output(b.node("GlobalAveragePool", {b.node("Relu", {sum})})).done(kReordered);
    EXPECT_THAT(steps_of(subject), ElementsAre("Conv+Relu", "MaxPool", "Conv+Add+Relu", "GlobalAveragePool"));
  }
}

TEST(Groups, TwoConvolutionsThatMeetTakeTheSumOnce) {
  Builder b("two branches");
  Value* x = b.input("1 16 6 6", Fill::small);
  auto convolved = [&] { return b.node("Conv", {x, b.weight("16 16 1 1", Fill::small)}); };
  Value *left = convolved(), *right = convolved();
  Subject subject = b.output(b.node("Relu", {b.node("Add", {left, right})})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("Conv", "Conv+Add+Relu"));
}

// The residual is read later too, so the result cannot take its memory over.
TEST(Groups, ResidualThatLivesOnIsKept) {
  Builder b("a residual that is an output of a later node");
  Value* x = b.input("1 16 6 6", Fill::small);
  Value* first = b.node("Relu", {b.node("Conv", {x, b.weight("16 16 1 1", Fill::small)})});
  Value* sum = b.node("Add", {b.node("Conv", {first, b.weight("16 16 1 1", Fill::small)}), first});
  Subject subject = b.output(b.node("Mul", {sum, first})).done();
  steps_of(subject);
}

}  // namespace
}  // namespace tessera::property

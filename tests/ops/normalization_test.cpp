#include <gmock/gmock.h>

#include <map>

#include "ops/one_node.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

TEST(Softmax, ReducesAlongItsAxis) {
  const std::map<std::string_view, std::string> kinds = {
      {"Softmax", "norm"}, {"LogSoftmax", "norm"}, {"Hardmax", "winner"}, {"LpNormalization", "moment"}};
  for (const auto& [type, kind] : kinds) {
    OneNode last(type);
    last.operand("b s v");
    EXPECT_EQ(last.type(), "float32 [b, s, v]") << type;
    EXPECT_EQ(last.rule(), "a b c -> a b c | c: " + kind) << type;
    EXPECT_EQ(last.partials(), "") << type;
    OneNode middle(type);
    middle.operand("b s v").set("axis", int64_t{1});
    EXPECT_EQ(middle.rule(), "a b c -> a b c | b: " + kind) << type;
  }
  OneNode costs("Softmax");
  costs.operand("b 10");
  EXPECT_EQ(costs.flops(), "50*b");
}

TEST(Softmax, RefusesIntegersAndAxesOutOfRange) {
  OneNode integers("Softmax");
  integers.operand("b s", DType::int32);
  EXPECT_THAT(integers.error(), HasSubstr("not int32; Cast it"));
  OneNode axis("Softmax");
  axis.operand("b s").set("axis", int64_t{2});
  EXPECT_THAT(axis.error(), HasSubstr("axis 2 is out of range for rank 2"));
}

TEST(LayerNormalization, NormalizesFromItsAxisOn) {
  OneNode node("LayerNormalization");
  node.operand("b s 96").operand("96").operand("96").results(3);
  EXPECT_EQ(node.type(0), "float32 [b, s, 96]");
  EXPECT_EQ(node.type(1), "float32 [b, s, 1]");
  EXPECT_EQ(node.rule(), "a b c, c, c -> a b c, a b 1, a b 1 | c: moment");
  EXPECT_EQ(node.flops(), "768*b*s");

  OneNode two("LayerNormalization");
  two.operand("b s 96", DType::bfloat16).operand("s 96", DType::bfloat16).set("axis", int64_t{1});
  EXPECT_EQ(two.type(), "bfloat16 [b, s, 96]");
  EXPECT_EQ(two.rule(), "a b c, b c -> a b c | b: moment, c: moment");
}

TEST(LayerNormalization, KeepsStatisticsInTheStashType) {
  OneNode node("LayerNormalization");
  node.operand("b 96", DType::float16).operand("96", DType::float16).absent().results(3);
  EXPECT_EQ(node.type(2), "float32 [b, 1]");
  EXPECT_EQ(node.rule(), "a b, b,  -> a b, a 1, a 1 | b: moment");
}

TEST(LayerNormalization, RefusesAScaleThatDoesNotFit) {
  OneNode node("LayerNormalization");
  node.operand("b s 96").operand("95");
  EXPECT_THAT(node.error(), HasSubstr("the scale [95] does not broadcast to [b, s, 96]"));
}

TEST(RMSNormalization, HasNoBias) {
  OneNode node("RMSNormalization");
  node.operand("b s h").operand("h");
  EXPECT_EQ(node.rule(), "a b c, c -> a b c | c: moment");
}

TEST(BatchNormalization, PassesAllDimensions) {
  OneNode node("BatchNormalization");
  node.operand("n 8 y x").operand("8").operand("8").operand("8").operand("8");
  EXPECT_EQ(node.type(), "float32 [n, 8, y, x]");
  EXPECT_EQ(node.rule(), "n c x y, c, c, c, c -> n c x y");

  OneNode training("BatchNormalization");
  training.operand("n 8 y x").operand("8").operand("8").operand("8").operand("8").set("training_mode", int64_t{1});
  EXPECT_EQ(training.type(), "float32 [n, 8, y, x]");
  OneNode wrong("BatchNormalization");
  wrong.operand("n 8 y x").operand("8").operand("8").operand("8").operand("7");
  EXPECT_THAT(wrong.error(), HasSubstr("(7)"));
}

TEST(InstanceNormalization, ReducesAlongSpatialDimensions) {
  OneNode node("InstanceNormalization");
  node.operand("n 8 y x").operand("8").operand("8");
  EXPECT_EQ(node.rule(), "n c x y, c, c -> n c x y | x: moment, y: moment");
}

TEST(GroupNormalization, PassesTheBatchAndGroups) {
  OneNode node("GroupNormalization");
  node.operand("n 8 x").operand("8").operand("8").set("num_groups", int64_t{4});
  EXPECT_EQ(node.rule(), "n (g c) x, (g c), (g c) -> n (g c) x | c: moment, x: moment");
  OneNode wrong("GroupNormalization");
  wrong.operand("n 8 x").operand("8").operand("8").set("num_groups", int64_t{3});
  EXPECT_THAT(wrong.error(), HasSubstr("num_groups is 3"));
}

TEST(MeanVarianceNormalization, ReducesAlongItsAxes) {
  OneNode node("MeanVarianceNormalization");
  node.operand("n c y x");
  EXPECT_EQ(node.rule(), "a b c d -> a b c d | a: moment, c: moment, d: moment");
}

}  // namespace
}  // namespace tessera::ops

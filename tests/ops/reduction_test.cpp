#include <gmock/gmock.h>

#include "ops/one_node.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

TEST(Reduce, SumsOverTheAxesThatItIsGiven) {
  OneNode node("ReduceSum");
  node.operand("b s h").ints({-1, 0});
  EXPECT_EQ(node.type(), "float32 [1, s, 1]");
  EXPECT_EQ(node.rule(), "a b c, 1 -> 1 b 1 | a: sum, c: sum");
  EXPECT_EQ(node.partials(), "sum{0}");
  EXPECT_EQ(node.flops(), "b*h*s");
}

TEST(Reduce, DropsDimensions) {
  OneNode node("ReduceMax");
  node.operand("b s h").ints({1}).set("keepdims", int64_t{0});
  EXPECT_EQ(node.type(), "float32 [b, h]");
  EXPECT_EQ(node.rule(), "a b c, 1 -> a c | b: max");
  EXPECT_EQ(node.partials(), "max{0}");
}

TEST(Reduce, WithoutAxesReducesAllOrNothing) {
  OneNode all("ReduceMin");
  all.operand("b s").set("keepdims", int64_t{0});
  EXPECT_EQ(all.type(), "float32 []");
  EXPECT_EQ(all.rule(), "a b ->  | a: min, b: min");
  OneNode nothing("ReduceSumSquare");
  nothing.operand("b s").set("noop_with_empty_axes", int64_t{1});
  EXPECT_EQ(nothing.type(), "float32 [b, s]");
  EXPECT_EQ(nothing.rule(), "a b -> a b");
}

TEST(Reduce, OfSquaresIsASumButNotLinear) {
  for (std::string_view type : {"ReduceSumSquare", "ReduceL1"}) {
    OneNode node(type);
    node.operand("b s").ints({1});
    EXPECT_EQ(node.rule(), "a b, 1 -> a 1 | b: sum") << type;
    EXPECT_EQ(node.partials(), "") << type;
  }
}

TEST(Reduce, NormsAndProductsCombineWithinTheLocalForm) {
  for (std::string_view type : {"ReduceProd", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"}) {
    OneNode node(type);
    node.operand("b s").ints({1});
    EXPECT_EQ(node.rule(), std::string("a b, 1 -> a 1 | b: ") + (type == "ReduceProd" ? "total" : "moment")) << type;
  }
  OneNode integers("ReduceMean");
  integers.operand("b s", DType::int32).ints({1});
  EXPECT_EQ(integers.rule(), "a b, 1 -> a 1 | b: whole");
}

TEST(Reduce, FollowsContents) {
  Expr s = Expr::symbol("s");
  OneNode product("ReduceProd");
  product.expressions({Expr(2), s, Expr(3)}).ints({0}).set("keepdims", int64_t{0});
  EXPECT_EQ(product.type(), "int64 []");
  EXPECT_EQ(product.content(), "[6*s]");
  OneNode sum("ReduceSum");
  sum.expressions({Expr(2), s});
  EXPECT_EQ(sum.type(), "int64 [1]");
  EXPECT_EQ(sum.content(), "[s + 2]");
}

TEST(Reduce, RefusesUnknownOrImpossibleAxes) {
  OneNode unknown("ReduceSum");
  unknown.operand("b s").operand("1", DType::int64);
  EXPECT_THAT(unknown.error(), HasSubstr("axes"));
  OneNode beyond("ReduceSum");
  beyond.operand("b s").ints({2});
  EXPECT_THAT(beyond.error(), HasSubstr("out of range"));
}

TEST(ReduceMean, OverASplitDimensionDividesByTheGlobalCount) {
  OneNode node("ReduceMean");
  node.operand("b 12").ints({-1});
  EXPECT_EQ(node.rule(), "a b, 1 -> a 1 | b: sum");
  EXPECT_THAT(
      node.localized("b", 3),
      testing::MatchesRegex("ReduceSum\\(A, .*\\) -> float32 \\[b, 1\\]\nDiv\\(Y0, .*\\) -> float32 \\[b, 1\\]\n"));
  EXPECT_THAT(node.localized("a", 3), testing::MatchesRegex("ReduceMean\\(.*\n"));

  OneNode symbolic("ReduceMean");
  symbolic.operand("b s").ints({-1}).set("keepdims", int64_t{0});
  EXPECT_THAT(symbolic.localized("b", 3), HasSubstr("Cast([s]) -> float32 []"));
}

TEST(ReduceMean, Of16BitValuesIsSummedInFloat32) {
  OneNode node("ReduceMean");
  node.operand("b 12", DType::float16).ints({-1});
  std::string text = node.localized("b", 3);
  EXPECT_THAT(text, testing::StartsWith("Cast(A) -> float32 [b, 4]\n"));
  EXPECT_THAT(text, testing::EndsWith(" -> float16 [b, 1]\n"));
}

TEST(ArgMax, NeedsItsAxisWhole) {
  OneNode node("ArgMax");
  node.operand("b s v").set("axis", int64_t{-1}).set("keepdims", int64_t{0});
  EXPECT_EQ(node.type(), "int64 [b, s]");
  EXPECT_EQ(node.rule(), "a b c -> a b | c: winner");
  EXPECT_EQ(node.partials(), "");
}

TEST(CumSum, NeedsItsAxisWhole) {
  OneNode node("CumSum");
  node.operand("b s").ints({1}, true);
  EXPECT_EQ(node.type(), "float32 [b, s]");
  EXPECT_EQ(node.rule(), "a b,  -> a b | b: scan");
  EXPECT_EQ(node.partials(), "sum{0}");
}

}  // namespace
}  // namespace tessera::ops

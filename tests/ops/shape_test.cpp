#include <gmock/gmock.h>

#include "ops/one_node.h"
#include "tessera/ops/library/reshape_rule.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

TEST(ReshapeRule, TakesADimensionApart) {
  EXPECT_EQ(reshape_rule({b, s, 192}, {b, s, 6, 32}).str(), "a b (c d) -> a b c d");
  EXPECT_EQ(reshape_rule({b, s, 192}, {b, s, 3, 4, 16}).str(), "a b (c d e) -> a b c d e");
}

TEST(ReshapeRule, JoinsDimensions) {
  EXPECT_EQ(reshape_rule({b, s, 96}, {b * s, 96}).str(), "a b c -> (a b) c");
  EXPECT_EQ(reshape_rule({b, s, 6, 32}, {b, s, 192}).str(), "a b c d -> a b (c d)");
  EXPECT_EQ(reshape_rule({b * s, 96}, {b, s, 96}).str(), "(a b) c -> a b c");
}

TEST(ReshapeRule, CutsBothSidesWhereTheyOverlap) {
  EXPECT_EQ(reshape_rule({6, 4, 5}, {6, 2, 10}).str(), "a (b c) d -> a b (c d)");
  EXPECT_EQ(reshape_rule({6, 4}, {2, 12}).str(), "(a b) c -> a (b c)");
  EXPECT_EQ(reshape_rule({s, 8}, {2 * s, 4}).str(), "a (b c) -> (a b) c");
}

TEST(ReshapeRule, KeepsWholeWhatDoesNotLineUp) {
  EXPECT_EQ(reshape_rule({6, 4}, {8, 3}).str(), "1 1 -> 1 1");
  EXPECT_EQ(reshape_rule({2, 6, 4, 5}, {2, 8, 3, 5}).str(), "a 1 1 b -> a 1 1 b");
  EXPECT_EQ(reshape_rule({12, 4}, {2, 8, 3}).str(), "(a b) 1 -> a 1 1 | b: whole");
  EXPECT_EQ(reshape_rule({b, s}, {s, b}).str(), "1 1 -> 1 1");
}

TEST(ReshapeRule, MatchesFromTheEndPastWhatIsNotComparable) {
  Expr cut = min(512, s);
  EXPECT_EQ(reshape_rule({s, 128}, {cut, 4, 32}).str(), "a (b c) -> a b c");
  EXPECT_EQ(reshape_rule({s, 128}, {cut, 4, 32}).factors[0].size, s);
}

TEST(ReshapeRule, ExtentsOfOneHaveNoFactor) {
  EXPECT_EQ(reshape_rule({b, 1, s}, {1, b, s, 1}).str(), "a 1 b -> 1 a b 1");
  EXPECT_EQ(reshape_rule({1, 1}, {}).str(), "1 1 -> ");
  EXPECT_EQ(reshape_rule({0, 4}, {2, 0}).str(), "1 1 -> 1 1");
}

// The invariant: an element's digits under the operand's factors are its digits under the result's.
TEST(ReshapeRule, FactorsMultiplyToTheirDimensionsInTheSameOrder) {
  std::vector<std::pair<Shape, Shape>> cases = {{{6, 4, 5}, {6, 2, 10}},    {{12, 4}, {2, 8, 3}}, {{30, 7}, {7, 30}},
                                                {{4, 9, 25}, {6, 6, 5, 5}}, {{360}, {2, 3, 60}},  {{8, 27}, {12, 18}}};
  for (const auto& [from, to] : cases) {
    Rule rule = reshape_rule(from, to);
    auto passing = [&](const std::vector<DimFactors>& dims, const Shape& shape) {
      // Each factor with the number of elements minor to it: equal on both sides.
      std::map<int, int64_t> strides;
      int64_t stride = 1;
      for (size_t d = dims.size(); d-- > 0;) {
        int64_t within = stride;
        for (size_t i = dims[d].size(); i-- > 0;) {
          const Factor& factor = rule.factors[dims[d][i]];
          if (factor.kind == FactorKind::pass) strides[dims[d][i]] = within;
          within *= *factor.size.constant();
        }
        stride *= *shape[d].constant();
        EXPECT_TRUE(dims[d].empty() || within == stride) << rule.str();
      }
      return strides;
    };
    EXPECT_EQ(passing(rule.operands[0], from), passing(rule.results[0], to)) << rule.str();
  }
}

TEST(Reshape, CopiesAndComputesExtents) {
  OneNode node("Reshape");
  node.operand("b s 192").ints({0, -1, 6, 32});
  EXPECT_EQ(node.type(), "float32 [b, s, 6, 32]");
  EXPECT_EQ(node.rule(), "a b (c d), 1 -> a b c d");
  EXPECT_EQ(node.partials(), "sum{0} max{0} min{0}");

  OneNode flat("Reshape");
  flat.operand("b s 96").ints({-1, 96});
  EXPECT_EQ(flat.type(), "float32 [b*s, 96]");
  EXPECT_EQ(flat.rule(), "a b c, 1 -> (a b) c");
}

TEST(Reshape, ZeroMeansZeroWithAllowzero) {
  OneNode node("Reshape");
  node.operand("0 4").ints({2, 0}).set("allowzero", int64_t{1});
  EXPECT_EQ(node.type(), "float32 [2, 0]");
}

TEST(Reshape, RefusesWhatCannotBe) {
  OneNode count("Reshape");
  count.operand("2 3").ints({4, 2});
  EXPECT_THAT(count.error(), HasSubstr("6 elements of shape [2, 3] cannot be given the shape [4, 2], which has 8"));

  OneNode twice("Reshape");
  twice.operand("2 3").ints({-1, -1});
  EXPECT_THAT(twice.error(), HasSubstr("has -1 twice"));

  OneNode data("Reshape");
  data.operand("2 3").operand("2", DType::int64);
  EXPECT_THAT(data.error(), HasSubstr("its shape ('B') depends on data"));
}

TEST(Reshape, TakesADeclaredShapeOfAsManyElements) {
  auto error = [](const char* from, const char* declared) {
    OneNode node("Reshape");
    return node.operand(from).operand("2", DType::int64).declared(declared).error();
  };
  EXPECT_EQ(error("2 3", "3 2"), "no error");
  EXPECT_EQ(error("2 3", "3 s"), "no error");
  EXPECT_EQ(error("b 3", "4 2"), "no error");
  EXPECT_THAT(error("2 3", "4 2"), HasSubstr("6 elements of shape [2, 3] cannot be given the shape [4, 2]"));
  EXPECT_THAT(error("0 3", "s 2"), HasSubstr("0 elements of shape [0, 3] cannot be given the shape [s, 2]"));
}

TEST(Expand, TakesADeclaredShapeThatItsOperandBroadcastsTo) {
  auto error = [](const char* from, const char* declared) {
    OneNode node("Expand");
    return node.operand(from).operand("2", DType::int64).declared(declared).error();
  };
  EXPECT_EQ(error("2", "5 2"), "no error");
  EXPECT_EQ(error("1", "5 s"), "no error");
  EXPECT_EQ(error("b", "5 2"), "no error");
  EXPECT_THAT(error("2", "5 4"), HasSubstr("[2]"));
  EXPECT_THAT(error("2", "5 1"), HasSubstr("the shape [2] does not expand to [5, 1], which the model declares"));
  EXPECT_THAT(error("2 3 4", "3 4"), HasSubstr("does not expand to [3, 4]"));
}

TEST(Reshape, GetsItsLocalShapeOnARank) {
  OneNode node("Reshape");
  node.operand("b s 192").ints({0, 0, 6, 32});
  EXPECT_EQ(node.localized("c", 2), "Reshape(A, [b, s, 3, 32]) -> float32 [b, s, 3, 32]\n");
  ASSERT_EQ(node.last_attributes.size(), 1u);
  EXPECT_EQ(node.last_attributes[0].name, "allowzero") << "a rank may hold no heads at all";
}

TEST(Flatten, JoinsBeforeAndAfterTheAxis) {
  OneNode node("Flatten");
  node.operand("b 3 8 8");
  EXPECT_EQ(node.type(), "float32 [b, 192]");
  EXPECT_EQ(node.rule(), "a b c d -> a (b c d)");

  OneNode all("Flatten");
  all.operand("b 3").set("axis", int64_t{2});
  EXPECT_EQ(all.type(), "float32 [3*b, 1]");
}

TEST(Squeeze, TakesAwayDimensionsOfOne) {
  OneNode node("Squeeze");
  node.operand("1 b 1 s").ints({0, -2});
  EXPECT_EQ(node.type(), "float32 [b, s]");
  EXPECT_EQ(node.rule(), "1 a 1 b, 1 -> a b");

  OneNode symbolic("Squeeze");
  symbolic.operand("s s").ints({0});
  EXPECT_EQ(symbolic.type(), "float32 [s]");
  EXPECT_EQ(symbolic.rule(), "1 a, 1 -> a");

  OneNode wrong("Squeeze");
  wrong.operand("2 3").ints({1});
  EXPECT_THAT(wrong.error(), HasSubstr("dimension 1 of shape [2, 3] has extent 3"));
}

TEST(Squeeze, NamesItsAxesOnARankWhereOtherExtentsMayBecomeOne) {
  OneNode node("Squeeze");
  node.operand("4 1");
  EXPECT_EQ(node.type(), "float32 [4]");
  EXPECT_EQ(node.localized("a", 4), "Squeeze(A, const) -> float32 [1]\n");
}

TEST(Unsqueeze, InsertsDimensionsOfOne) {
  OneNode node("Unsqueeze");
  node.operand("b s").ints({1, -1});
  EXPECT_EQ(node.type(), "float32 [b, 1, s, 1]");
  EXPECT_EQ(node.rule(), "a b, 1 -> a 1 b 1");

  OneNode scalar("Unsqueeze");
  scalar.expressions({s + 1}, true).ints({0});
  EXPECT_EQ(scalar.type(), "int64 [1]");
  EXPECT_EQ(scalar.content(), "[s + 1]");

  OneNode wrong("Unsqueeze");
  wrong.operand("b s").ints({3});
  EXPECT_THAT(wrong.error(), HasSubstr("axes 3 is out of range for rank 3; use -3 to 2"));
}

TEST(Expand, BroadcastsToAShape) {
  OneNode node("Expand");
  node.operand("b 1 s 32").expressions({b, 6, 1, 1});
  EXPECT_EQ(node.type(), "float32 [b, 6, s, 32]");
  EXPECT_EQ(node.rule(), "a 1 c d, 1 -> a b c d");
  EXPECT_EQ(node.localized("b", 2), "Expand(A, [b, 3, s, 32]) -> float32 [b, 3, s, 32]\n");

  OneNode list("Expand");
  list.expressions({s}, true).ints({3});
  EXPECT_EQ(list.content(), "[s, s, s]");
}

TEST(Shape, GivesExtentsAsContent) {
  OneNode all("Shape");
  all.operand("b s 4");
  EXPECT_EQ(all.type(), "int64 [3]");
  EXPECT_EQ(all.content(), "[b, s, 4]");

  OneNode some("Shape");
  some.operand("b s 4").set("start", int64_t{-2}).set("end", int64_t{100});
  EXPECT_EQ(some.content(), "[s, 4]");

  OneNode size("Size");
  size.operand("b s 4");
  EXPECT_EQ(size.type(), "int64 []");
  EXPECT_EQ(size.content(), "[4*b*s]");
}

}  // namespace
}  // namespace tessera::ops

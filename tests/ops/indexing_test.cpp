#include <gmock/gmock.h>

#include <limits>

#include "ops/one_node.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

TEST(Gather, LooksUpRows) {
  OneNode node("Gather");
  node.operand("1000 h").operand("batch s", DType::int64);
  EXPECT_EQ(node.type(), "float32 [batch, s, h]");
  EXPECT_EQ(node.rule(), "v h, b s -> b s h | v: lookup");
  EXPECT_EQ(node.partials(), "sum{0} max{0} min{0}");
}

TEST(Gather, AlongAnyAxis) {
  OneNode node("Gather");
  node.operand("x y z").operand("", DType::int64).set("axis", int64_t{-2});
  EXPECT_EQ(node.type(), "float32 [x, z]");
  EXPECT_EQ(node.rule(), "a v h,  -> a h | v: lookup");
}

// Bools, floats of 8 bits, and what shares bytes have no sum.
TEST(Gather, OfWhatHasNoSumIsWhole) {
  for (const DType dtype : {DType::boolean, DType::float8e4m3fn, DType::float8e5m2fnuz, DType::uint4, DType::int2}) {
    OneNode node("Gather");
    node.operand("v", dtype).operand("n", DType::int64);
    EXPECT_EQ(node.rule(), "v, b -> b | v: whole") << name_of(dtype);
    OneNode points("GatherND");
    points.operand("v", dtype).operand("n 1", DType::int64);
    EXPECT_EQ(points.rule(), "v, a 1 -> a | v: whole") << name_of(dtype);
  }
  for (const DType dtype : {DType::bfloat16, DType::float64, DType::int8, DType::uint64}) {
    OneNode node("Gather");
    node.operand("v", dtype).operand("n", DType::int64);
    EXPECT_EQ(node.rule(), "v, b -> b | v: lookup") << name_of(dtype);
  }
}

TEST(Gather, FollowsContents) {
  Expr s = Expr::symbol("s");
  OneNode scalar("Gather");
  scalar.expressions({Expr(2), s, 2 * s}).ints({-1}, true);
  EXPECT_EQ(scalar.type(), "int64 []");
  EXPECT_EQ(scalar.content(), "[2*s]");

  OneNode several("Gather");
  several.expressions({Expr(2), s, 2 * s}).ints({1, 0});
  EXPECT_EQ(several.content(), "[s, 2]");

  OneNode beyond("Gather");
  beyond.expressions({Expr(2), s}).ints({2}, true);
  EXPECT_THAT(beyond.error(), HasSubstr("index 2 is outside the 2 elements"));

  OneNode unknown("Gather");
  unknown.expressions({Expr(2), s}).operand("", DType::int64);
  EXPECT_EQ(unknown.content(), "unknown");
}

TEST(Gather, FollowsNoContentsBeyond64Bits) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
  OneNode node("Gather");
  node.expressions({Expr(0), Expr(kMost), Expr(kLeast)}).expressions({mod(Expr::axis_index("x"), 3)}, true);
  EXPECT_EQ(node.content(), "unknown");
}

// By an index with known bounds only: the content is right for each of its values.
TEST(Gather, FollowsContentsByAnIndex) {
  const Expr total = Expr::symbol("t"), index = mod(Expr::axis_index("x"), 5);
  std::vector<Expr> even, balanced, of_a_formula, any;
  for (int64_t k = 0; k < 5; ++k) {
    even.push_back(3 * k + 7);
    balanced.push_back(5 * k - (k == 4));
    of_a_formula.push_back(k * floordiv(total, 4) + min(k, mod(total, 4)));
    any.push_back(k == 2 ? total : Expr(k % 3));
  }
  for (const auto& [table, text] : {std::pair(even, "[3*mod(@x, 5) + 7]"),
                                    {balanced, "[-max(0, mod(@x, 5) - 3) + 5*mod(@x, 5)]"},
                                    {of_a_formula, "[floordiv(t, 4)*mod(@x, 5) + min(mod(@x, 5), mod(t, 4))]"},
                                    {any, ""}}) {
    OneNode node("Gather");
    node.expressions(table).expressions({index}, true);
    const std::string content = node.content();
    EXPECT_TRUE(*text == 0 || content == text) << content;
    const Expr element = Expr::parse(content.substr(1, content.size() - 2)).value();
    for (int64_t t : {0, 3, 7, 12})
      for (int64_t k = 0; k < 5; ++k)
        EXPECT_EQ(element.evaluate({{"t", t}, {"@x", k}}), table[k].evaluate({{"t", t}})) << content << " at " << k;
  }
  OneNode beyond("Gather");
  beyond.expressions(even).expressions({index + 1}, true);
  EXPECT_EQ(beyond.content(), "unknown");
}

TEST(Gather, OfASplitTableIsAPartialSum) {
  OneNode node("Gather");
  node.operand("1000 h").operand("b s", DType::int64);
  EXPECT_EQ(node.localized("v", 4), "GatherShard(A, B, [250*@x], [1000]) -> float32 [b, s, h]\n");
  EXPECT_EQ(node.localized("s", 4), "Gather(A, B) -> float32 [b, floordiv(-@x + s + 3, 4), h]\n");
}

TEST(GatherShard, HasGathersType) {
  OneNode node("GatherShard", "tessera");
  node.operand("250 h").operand("b s", DType::int64).operand("", DType::int64).operand("", DType::int64);
  EXPECT_EQ(node.type(), "float32 [b, s, h]");
  EXPECT_EQ(node.rule(), "v h, b s, ,  -> b s h | v: whole");
}

TEST(GatherND, PassesBatchPointsAndRest) {
  OneNode node("GatherND");
  node.operand("b x y h").operand("b p 2", DType::int64).set("batch_dims", int64_t{1});
  EXPECT_EQ(node.type(), "float32 [b, p, h]");
  EXPECT_EQ(node.rule(), "a v w c, a b 1 -> a b c | v: lookup, w: lookup");
  EXPECT_EQ(node.localized("w", 2), "GatherNDShard(A, B, [0, @x*floordiv(y + 1, 2)], [x, y]) -> float32 [b, p, h]\n");

  OneNode wrong("GatherND");
  wrong.operand("b x").operand("p 3", DType::int64);
  EXPECT_THAT(wrong.error(), HasSubstr("the last extent"));
}

TEST(GatherElements, PassesWhereTheExtentsAgree) {
  OneNode node("GatherElements");
  node.operand("b v w").operand("b n 3", DType::int64).set("axis", int64_t{1});
  EXPECT_EQ(node.type(), "float32 [b, n, 3]");
  EXPECT_EQ(node.rule(), "a v 1, a b c -> a b c | c: index, v: lookup");
}

TEST(GatherElements, OfASplitTableIsAPartialSum) {
  OneNode node("GatherElements");
  node.operand("b 1000").operand("b 1", DType::int64).set("axis", int64_t{-1});
  EXPECT_EQ(node.localized("v", 4), "GatherElementsShard(A, B, [250*@x], [1000]) -> float32 [b, 1]\n");
}

TEST(ScatterND, PassesBelowThePoints) {
  OneNode node("ScatterND");
  node.operand("v h").operand("n 1", DType::int64).operand("n h").set("reduction", std::string("add"));
  EXPECT_EQ(node.type(), "float32 [v, h]");
  EXPECT_EQ(node.rule(), "a b, n 1, n b -> a b | a: target, n: update");
  EXPECT_EQ(node.partials(), "sum{0,2}");
  EXPECT_EQ(node.localized("n", 2),
            "Equal([@x], const) -> bool []\n"
            "Where(A.first, A, const_1) -> float32 [v, h]\n"
            "ScatterND(A.first_1, B, C) -> float32 [v, h]\n")
      << "the first rank adds its updates to the data, the others to zeros";
  OneNode last("ScatterND");
  last.operand("v h").operand("n 1", DType::int64).operand("n h");
  EXPECT_EQ(last.rule(), "a b, 1 1, 1 b -> a b | a: target") << "which update counts depends on all";

  OneNode fresh("ScatterND");
  fresh.ints({0, 0, 0, 0}).operand("n 1", DType::int64).operand("n", DType::int64);
  EXPECT_EQ(fresh.partials(), "sum{0,2} sum{2}") << "zeros are a term of any sum";
  OneNode counted("ScatterND");
  counted.ints({0, 1}).operand("n 1", DType::int64).operand("n", DType::int64);
  EXPECT_EQ(counted.partials(), "sum{0,2}");

  OneNode points("ScatterND");
  points.operand("8 6 h").operand("n 2", DType::int64).operand("n h");
  EXPECT_EQ(points.localized("a", 4), "ScatterNDShard(A, B, C, [2*@x, 0], [8, 6]) -> float32 [2, 6, h]\n");

  OneNode wrong("ScatterND");
  wrong.operand("v h").operand("n 1", DType::int64).operand("n");
  EXPECT_THAT(wrong.error(), HasSubstr("do not address"));
}

TEST(ScatterElements, PassesBesideTheAxis) {
  OneNode node("ScatterElements");
  node.operand("b v").operand("b n", DType::int64).operand("b n").set("axis", int64_t{1});
  EXPECT_EQ(node.rule(), "a b, a 1, a 1 -> a b | b: target");
  node.set("reduction", std::string("max"));
  EXPECT_EQ(node.rule(), "a b, a n1, a n1 -> a b | b: target, n1: update");
  EXPECT_EQ(node.localized("n1", 2), "ScatterElements(A, B, C) -> float32 [b, v]\n");
  OneNode wrong("ScatterElements");
  wrong.operand("b v").operand("b n", DType::int64).operand("b n").set("reduction", std::string("avg"));
  EXPECT_THAT(wrong.error(), HasSubstr("'avg'"));
}

TEST(OneHot, AddsTheDepth) {
  OneNode node("OneHot");
  node.operand("b s", DType::int64).ints({10}, true).operand("2");
  EXPECT_EQ(node.type(), "float32 [b, s, 10]");
  EXPECT_EQ(node.rule(), "a b, , 1 -> a b v | v: index");
  EXPECT_EQ(node.localized("v", 5),
            "Add(A, const_1) -> int64 [b, s]\n"
            "Less(A, const_2) -> bool [b, s]\n"
            "Where(Y0.Less, Y0.Add, A) -> int64 [b, s]\n"
            "Sub(Y0.Where, [2*@x]) -> int64 [b, s]\n"
            "Less(Y0.Sub, const_4) -> bool [b, s]\n"
            "Where(Y0.Less_1, const_3, Y0.Sub) -> int64 [b, s]\n"
            "OneHot(Y0.Where_1, const_3, C) -> float32 [b, s, 2]\n")
      << "const_1: 10, const_2 and const_4: 0, const_3: 2";
  OneNode first("OneHot");
  first.operand("b", DType::int64).ints({10}).operand("2").set("axis", int64_t{0});
  EXPECT_EQ(first.rule(), "a, 1, 1 -> v a | v: index");
  OneNode real("OneHot");
  real.operand("b", DType::int64).number(DType::float32, 7).operand("2");
  EXPECT_EQ(real.type(), "float32 [b, 7]");
  OneNode fractions("OneHot");
  fractions.operand("b").ints({10}).operand("2");
  EXPECT_EQ(fractions.rule(), "a, 1, 1 -> a v | v: whole");
  OneNode unknown("OneHot");
  unknown.operand("b", DType::int64).operand("", DType::int64).operand("2");
  EXPECT_THAT(unknown.error(), HasSubstr("depth"));
}

TEST(TopK, KeepsTheOtherDimensions) {
  OneNode node("TopK");
  node.operand("b 100").ints({5}).results(2);
  EXPECT_EQ(node.type(0), "float32 [b, 5]");
  EXPECT_EQ(node.type(1), "int64 [b, 5]");
  EXPECT_EQ(node.rule(), "a b, 1 -> a 1, a 1 | b: top");
  OneNode wrong("TopK");
  wrong.operand("b 4").ints({5}).results(2);
  EXPECT_THAT(wrong.error(), HasSubstr("K is 5, but dimension 1 has 4"));
}

TEST(Indices, AreIntegers) {
  OneNode node("Gather");
  node.operand("v h").operand("n", DType::float32);
  EXPECT_THAT(node.error(), HasSubstr("Cast"));
}

}  // namespace
}  // namespace tessera::ops

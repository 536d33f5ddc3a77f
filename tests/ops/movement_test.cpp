#include <gmock/gmock.h>

#include "ops/one_node.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

TEST(Transpose, PermutesFactors) {
  OneNode node("Transpose");
  node.operand("b s 6 32").set("perm", std::vector<int64_t>{0, 2, 1, 3});
  EXPECT_EQ(node.type(), "float32 [b, 6, s, 32]");
  EXPECT_EQ(node.rule(), "a b c d -> a c b d");

  OneNode reversed("Transpose");
  reversed.operand("m k");
  EXPECT_EQ(reversed.type(), "float32 [k, m]");

  OneNode wrong("Transpose");
  wrong.operand("m k").set("perm", std::vector<int64_t>{0, 0});
  EXPECT_THAT(wrong.error(), HasSubstr("perm name dimension 0 twice"));

  OneNode negative("Transpose");
  negative.operand("m k").set("perm", std::vector<int64_t>{0, -1});
  EXPECT_THAT(negative.error(), HasSubstr("perm holds -1; its entries are the dimensions 0 to 1"));
}

TEST(Concat, AddsExtentsAlongItsAxis) {
  OneNode node("Concat");
  node.operand("b past 64").operand("b s 64").set("axis", int64_t{-2});
  EXPECT_EQ(node.type(), "float32 [b, past + s, 64]");
  EXPECT_EQ(node.rule(), "a 1 c, a 1 c -> a 1 c");
  EXPECT_EQ(node.partials(), "sum{0,1} max{0,1} min{0,1}");

  OneNode unequal("Concat");
  unequal.operand("b 3 64").operand("b s 64").set("axis", int64_t{1});
  EXPECT_EQ(unequal.rule(), "a b c, a b c -> a b c | b: halo");

  OneNode list("Concat");
  list.expressions({b}).ints({-1}).expressions({4 * s}).set("axis", int64_t{0});
  EXPECT_EQ(list.content(), "[b, -1, 4*s]");

  OneNode wrong("Concat");
  wrong.operand("2 3").operand("2 4").set("axis", int64_t{0});
  EXPECT_THAT(wrong.error(), HasSubstr("only dimension 0 may differ"));
}

TEST(Split, OfEqualPiecesSplitsWithItsResults) {
  OneNode node("Split");
  node.operand("b s 576").ints({192, 192, 192}).set("axis", int64_t{2}).results(3);
  EXPECT_EQ(node.type(2), "float32 [b, s, 192]");
  EXPECT_EQ(node.rule(), "a b (pieces c), 1 -> a b c, a b c, a b c | pieces: whole");
  EXPECT_EQ(node.localized("c", 2), "Split(A, [96, 96, 96]) -> float32 [b, s, 96]\n");
}

TEST(Split, DropsNumOutputsWhenItsPiecesAreLocal) {
  OneNode node("Split");
  node.operand("b 8").set("axis", int64_t{1}).set("num_outputs", int64_t{2}).results(2);
  EXPECT_EQ(node.type(1), "float32 [b, 4]");
  EXPECT_EQ(node.localized("b", 2), "Split(A, [2, 2]) -> float32 [b, 2]\n");
  ASSERT_EQ(node.last_attributes.size(), 1u);
  EXPECT_EQ(node.last_attributes[0].name, "axis");
}

TEST(Split, OfUnequalPiecesKeepsItsAxisWhole) {
  OneNode node("Split");
  node.operand("b 7").set("axis", int64_t{1}).set("num_outputs", int64_t{3}).results(3);
  EXPECT_EQ(node.type(0), "float32 [b, 3]");
  EXPECT_EQ(node.type(2), "float32 [b, 1]") << "the last piece is what is left";
  EXPECT_EQ(node.rule(), "a 1 -> a 1, a 1, a 1");

  OneNode grouped("Split");
  grouped.operand("b 320").ints({192, 64, 64}).set("axis", int64_t{-1}).results(3);
  EXPECT_EQ(grouped.type(1), "float32 [b, 64]");

  OneNode wrong("Split");
  wrong.operand("7").ints({3, 3}).results(2);
  EXPECT_THAT(wrong.error(), HasSubstr("the pieces [3, 3] add up to 6, but the dimension has 7"));
}

TEST(DepthToSpace, MovesChannelsIntoBlocks) {
  OneNode node("DepthToSpace");
  node.operand("b 12 h w").set("blocksize", int64_t{2});
  EXPECT_EQ(node.type(), "float32 [b, 3, 2*h, 2*w]");
  EXPECT_EQ(node.rule(), "n (p q c) h w -> n c (h p) (w q)");

  OneNode columns("DepthToSpace");
  columns.operand("b 12 h w").set("blocksize", int64_t{2}).set("mode", "CRD");
  EXPECT_EQ(columns.rule(), "n (c p q) h w -> n c (h p) (w q)");

  OneNode wrong("DepthToSpace");
  wrong.operand("b 10 h w").set("blocksize", int64_t{2});
  EXPECT_THAT(wrong.error(), HasSubstr("the number of channels is 10, which blocks of 4 do not divide"));
}

TEST(SpaceToDepth, MovesBlocksIntoChannels) {
  OneNode node("SpaceToDepth");
  node.operand("b 3 8 2*w").set("blocksize", int64_t{2});
  EXPECT_EQ(node.type(), "float32 [b, 12, 4, w]");
  EXPECT_EQ(node.rule(), "n c (h p) (w q) -> n (p q c) h w");
}

TEST(Trilu, ShiftsItsDiagonalByTheFirstRowAndColumn) {
  OneNode node("Trilu");
  node.operand("b 8 8").ints({1}, true);
  EXPECT_EQ(node.type(), "float32 [b, 8, 8]");
  EXPECT_EQ(node.rule(), "a b c,  -> a b c | b: index, c: index");
  EXPECT_EQ(node.localized("b", 2), "Trilu(A, [4*@x + 1]) -> float32 [b, 4, 8]\n");
  EXPECT_EQ(node.localized("c", 2), "Trilu(A, [-4*@x + 1]) -> float32 [b, 8, 4]\n");
  EXPECT_EQ(node.localized("a", 2), "Trilu(A, const) -> float32 [floordiv(-@x + b + 1, 2), 8, 8]\n");

  OneNode unknown("Trilu");
  unknown.operand("8 8").operand("", DType::int64);
  EXPECT_EQ(unknown.rule(), "1 1,  -> 1 1");
}

}  // namespace
}  // namespace tessera::ops

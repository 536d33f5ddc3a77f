#include <gmock/gmock.h>

#include "ops/one_node.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

TEST(MatMul, MultipliesMatrices) {
  OneNode node("MatMul");
  node.operand("m k").operand("k 8");
  EXPECT_EQ(node.type(), "float32 [m, 8]");
  EXPECT_EQ(node.rule(), "m k, k n -> m n | k: sum");
  EXPECT_EQ(node.partials(), "sum{0} sum{1}");
  EXPECT_EQ(node.flops(), "16*k*m");
}

TEST(MatMul, BroadcastsBatchDimensions) {
  OneNode node("MatMul");
  node.operand("batch 6 s 32").operand("32 t");
  EXPECT_EQ(node.type(), "float32 [batch, 6, s, t]");
  EXPECT_EQ(node.rule(), "b c m k, k n -> b c m n | k: sum");

  OneNode repeated("MatMul");
  repeated.operand("1 6 s 32").operand("batch 1 32 t");
  EXPECT_EQ(repeated.type(), "float32 [batch, 6, s, t]");
  EXPECT_EQ(repeated.rule(), "1 c m k, b 1 k n -> b c m n | k: sum");
}

TEST(MatMul, TakesVectors) {
  OneNode left("MatMul");
  left.operand("k").operand("b k n");
  EXPECT_EQ(left.type(), "float32 [b, n]");
  EXPECT_EQ(left.rule(), "k, b k n -> b n | k: sum");

  OneNode both("MatMul");
  both.operand("7").operand("7");
  EXPECT_EQ(both.type(), "float32 []");
  EXPECT_EQ(both.rule(), "k, k ->  | k: sum");
  EXPECT_EQ(both.flops(), "14");
}

TEST(MatMul, OfOurOwnAccumulatesInFloat32) {
  OneNode node("MatMul", "tessera");
  node.operand("m k", DType::bfloat16).operand("k n", DType::bfloat16).set("accumulate", std::string("float32"));
  EXPECT_EQ(node.type(), "float32 [m, n]");
}

TEST(MatMul, NamesTheExtentsThatDiffer) {
  OneNode node("MatMul");
  node.operand("m 4").operand("5 n");
  EXPECT_THAT(node.error(), HasSubstr("(4)"));
  EXPECT_THAT(node.error(), HasSubstr("(5)"));
  EXPECT_THAT(node.error(), HasSubstr("MatMul producing 'Y0'"));

  OneNode types("MatMul");
  types.operand("m 4").operand("4 n", DType::float16);
  EXPECT_THAT(types.error(), HasSubstr("Cast"));
  OneNode scalar("MatMul");
  scalar.operand("").operand("4 n");
  EXPECT_THAT(scalar.error(), HasSubstr("use Mul"));
}

TEST(Gemm, SumsOverKOnlyWithoutC) {
  OneNode bare("Gemm");
  bare.operand("m 4").operand("8 4").set("transB", int64_t{1});
  EXPECT_EQ(bare.type(), "float32 [m, 8]");
  EXPECT_EQ(bare.rule(), "m k, n k -> m n | k: sum");
  EXPECT_EQ(bare.partials(), "sum{0} sum{1}");

  OneNode added("Gemm");
  added.operand("4 m").operand("4 8").operand("8").set("transA", int64_t{1});
  EXPECT_EQ(added.type(), "float32 [m, 8]");
  EXPECT_EQ(added.rule(), "k m, k n, n -> m n | k: sum");
  EXPECT_EQ(added.partials(), "sum{0,2} sum{1,2}");
  EXPECT_EQ(added.flops(), "64*m");
}

TEST(Gemm, RefusesAWideC) {
  OneNode node("Gemm");
  node.operand("m 4").operand("4 8").operand("3 m 8");
  EXPECT_THAT(node.error(), HasSubstr("does not broadcast"));
  OneNode rank("Gemm");
  rank.operand("b m 4").operand("4 8");
  EXPECT_THAT(rank.error(), HasSubstr("rank 2"));
}

TEST(Einsum, ItsEquationIsItsRule) {
  OneNode node("Einsum");
  node.operand("batch 6 s 32").operand("batch 6 t 32").set("equation", std::string("bhid,bhjd->bhij"));
  EXPECT_EQ(node.type(), "float32 [batch, 6, s, t]");
  EXPECT_EQ(node.rule(), "b h i d, b h j d -> b h i j | d: sum");
  EXPECT_EQ(node.partials(), "sum{0} sum{1}");
  EXPECT_EQ(node.flops(), "384*batch*s*t");
}

TEST(Einsum, UnderstandsEllipsisDiagonalsAndImplicitResults) {
  OneNode ellipsis("Einsum");
  ellipsis.operand("x y i k").operand("y k j").set("equation", std::string("...ik, ...kj -> ...ij"));
  EXPECT_EQ(ellipsis.type(), "float32 [x, y, i, j]");
  EXPECT_EQ(ellipsis.rule(), "e1 e0 i k, e0 k j -> e1 e0 i j | k: sum");

  OneNode implicit("Einsum");
  implicit.operand("p q").operand("q r").set("equation", std::string("ab,bc"));
  EXPECT_EQ(implicit.type(), "float32 [p, r]");

  OneNode diagonal("Einsum");
  diagonal.operand("n n").set("equation", std::string("ii->i"));
  EXPECT_EQ(diagonal.rule(), "i i -> i | i: whole");
}

TEST(Einsum, SaysWhatIsWrongWithTheEquation) {
  OneNode terms("Einsum");
  terms.operand("p q").set("equation", std::string("ab,bc->ac"));
  EXPECT_THAT(terms.error(), HasSubstr("more terms"));
  OneNode rank("Einsum");
  rank.operand("p q").set("equation", std::string("abc->a"));
  EXPECT_THAT(rank.error(), HasSubstr("'abc' has 3 dimensions"));
  OneNode label("Einsum");
  label.operand("p q").set("equation", std::string("ab->az"));
  EXPECT_THAT(label.error(), HasSubstr("'z'"));
  OneNode extents("Einsum");
  extents.operand("4 5").operand("6 7").set("equation", std::string("ab,bc->ac"));
  EXPECT_THAT(extents.error(), HasSubstr("both 5 and 6"));
}

}  // namespace
}  // namespace tessera::ops

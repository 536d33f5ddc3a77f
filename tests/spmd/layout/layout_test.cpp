#include "tessera/spmd/layout/layout.h"

#include <gtest/gtest.h>

#include "spmd/compiled.h"

namespace tessera::spmd {
namespace {

const NodeLayout& node_of(const Compiled& compiled, std::string_view type) {
  for (const NodeLayout& node : compiled.layout->nodes)
    if (node.node->op_type == type) return node;
  throw std::out_of_range(std::string(type));
}

constexpr std::string_view kHeads =
    "m (float[b, 6] x) => (float[b, 3, 4] y) <float[6, 12] w, float[12] c> {\n"
    "  h = MatMul (x, w)\n"
    "  s = Add (h, c)\n"
    "  shape = Constant <value_ints = [0, 3, 4]> ()\n"
    "  y = Reshape (s, shape)\n"
    "}\n";

TEST(Refinement, CarriesHeadsBackToTheWeights) {
  Compiled heads(kHeads, "x=1");
  EXPECT_EQ(heads.parts("y", 1), "3");
  for (const char* name : {"s", "h"}) EXPECT_EQ(heads.parts(name, 1), "3*4");
  EXPECT_EQ(heads.parts("w", 1), "3*4");
  EXPECT_EQ(heads.parts("c", 0), "3*4");
  EXPECT_EQ(heads.parts("w", 0), "6") << "the contraction has nothing to do with heads";
}

TEST(Refinement, OfAnnotatedPartsGoesAsFar) {
  Compiled annotated("m (float[4, 6] x) => (float[4, 6] y) { h = Relu (x)\n y = Neg (h) }", "x=3",
                     {{"x", "[-, 3{x}*2]"}});
  EXPECT_EQ(annotated.parts("y", 1), "3*2");
  EXPECT_EQ(annotated.propagated("y"), "[-, 3{x}·2]");
}

// 12 as heads of 4 and as heads of 6: of cuts that do not nest the first stays, and the other edge differs.
TEST(Refinement, KeepsTheFirstOfTwoThatConflict) {
  Compiled conflict(
      "m (float[2, 12] x) => (float[2, 3, 4] y, float[2, 2, 6] z) {\n"
      "  fours = Constant <value_ints = [2, 3, 4]> ()\n"
      "  y = Reshape (x, fours)\n"
      "  h = Relu (x)\n"
      "  sixes = Constant <value_ints = [2, 2, 6]> ()\n"
      "  z = Reshape (h, sixes)\n"
      "}\n",
      "x=1");
  EXPECT_EQ(conflict.parts("x", 1), "3*4");
  EXPECT_EQ(conflict.parts("h", 1), "2*6") << "uses of a source have layouts of their own";
}

TEST(Refinement, FindsThePiecesOfAFusedProjection) {
  Compiled fused(
      "m (float[2, 6] x) => (float[2, 4] q, float[2, 4] k, float[2, 4] v) <float[6, 12] w> {\n"
      "  h = MatMul (x, w)\n"
      "  q, k, v = Split <axis = 1, num_outputs = 3> (h)\n"
      "}\n",
      "x=2", {{"w", "[-, x]"}});
  EXPECT_EQ(fused.parts("w", 1), "3*4");
  EXPECT_EQ(fused.propagated("w"), "[-, 3·4{x}]") << "the axis goes where Split can keep it";
  EXPECT_EQ(fused.propagated("k"), "[-, 4{x}]");
}

TEST(Blocked, IsWhatSomeOperatorNeedsWhole) {
  Compiled lookup("m (bool[4, 6] x, int64[3] i) => (bool[4, 3] y) { y = Gather <axis = 1> (x, i) }", "x=1");
  auto blocked = [&](size_t dim) { return lookup.layout->blocked[lookup.slot("x").dims[dim].parts[0].component]; };
  EXPECT_FALSE(blocked(0));
  EXPECT_TRUE(blocked(1));
}

TEST(SubFactors, AreTheFinestPiecesOfAFactor) {
  Compiled heads(kHeads, "x=1");
  const NodeLayout& product = node_of(heads, "MatMul");
  std::vector<std::string> pieces;
  for (const SubFactor& sub : product.subfactors)
    pieces.push_back(product.rule.factors[sub.factor].name + std::to_string(sub.index) + "=" + sub.size.str());
  EXPECT_EQ(pieces, (std::vector<std::string>{"m0=b", "k0=6", "n0=3", "n1=4"}));
}

// One key head is a factor of one element, which the query's heads leave out: it cannot be split with them.
TEST(SubFactors, OfOneElementAreNotSplit) {
  Compiled attention(
      "m (float[2, 6, 3, 4] q, float[2, 1, 5, 4] k, float[2, 1, 5, 4] v) => (float[2, 6, 3, 4] y) {\n"
      "  y = Attention (q, k, v)\n"
      "}\n",
      "x=2", {{"k", "[-, 1{x}, -, -]"}});
  EXPECT_EQ(attention.communication(), "k: AllGather x");
}

}  // namespace
}  // namespace tessera::spmd

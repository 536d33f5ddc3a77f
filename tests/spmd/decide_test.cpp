#include "tessera/spmd/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/compiled.h"
#include "tessera/base/error.h"

namespace tessera::spmd {
namespace {

constexpr std::string_view kProduct =
    "m (float[8, 6] x) => (float[8, 4] y) <float[6, 4] w> {\n"
    "  h = MatMul (x, w)\n"
    "  y = Relu (h)\n"
    "}\n";

TEST(Decisions, ContractingASplitDimensionGivesAPartialSum) {
  Compiled compiled(kProduct, "tp=2", {{"w", "[tp, -]"}});
  EXPECT_EQ(compiled.produced("h"), "[-, -] partial(sum:tp)");
  EXPECT_EQ(compiled.produced("y"), "[-, -]");
  EXPECT_EQ(compiled.communication(), "h: AllReduce tp");
}

TEST(Decisions, PartialSumsGoThroughLinearOperatorsAndAreReducedOnce) {
  Compiled compiled(
      "m (float[8, 6] x) => (float[4, 8] y) <float[6, 4] v, float[6, 4] w> {\n"
      "  a = MatMul (x, v)\n"
      "  b = MatMul (x, w)\n"
      "  s = Add (a, b)\n"
      "  n = Transpose <perm = [1, 0]> (s)\n"
      "  y = Relu (n)\n"
      "}\n",
      "tp=2", {{"v", "[tp, -]"}, {"w", "[tp, -]"}});
  EXPECT_EQ(compiled.produced("n"), "[-, -] partial(sum:tp)");
  EXPECT_EQ(compiled.communication(), "n: AllReduce tp");
}

TEST(Decisions, AnOrderedResultIsReducedOnto) {
  Compiled compiled(kProduct, "tp=2", {{"w", "[tp, -]"}, {"h", "[tp, -]"}});
  EXPECT_EQ(compiled.communication(), "h: ReduceScatter tp") << "y stays as it comes";
}

TEST(Decisions, SourcesAreStoredAsAllTheirUsesWantThem) {
  Compiled agree(kProduct, "dp=2", {{"h", "[dp, -]"}});
  EXPECT_EQ(agree.stored("x"), "[8{dp}, -]");
  Compiled differ("m (float[8, 8] x) => (float[8, 8] y, float[8, 8] z) { y = Relu (x)\n z = Neg (x) }", "tp=2",
                  {{"y", "[tp, -]"}, {"z", "[-, tp]"}});
  EXPECT_EQ(differ.stored("x"), "[-, -]") << "each use takes its slice for nothing";
  EXPECT_EQ(differ.communication(), "");
}

TEST(Decisions, AnnotatedSourcesAreStoredAsOrdered) {
  Compiled compiled(kProduct, "tp=2", {{"w", "[-, tp]"}, {"h", "[tp, -]"}});
  EXPECT_EQ(compiled.stored("w"), "[-, 4{tp}]");
}

TEST(Decisions, OutputsAreNeverPartial) {
  Compiled compiled("m (float[8, 6] x) => (float[8, 4] y) <float[6, 4] w> { y = MatMul (x, w) }", "tp=2",
                    {{"w", "[tp, -]"}});
  EXPECT_EQ(compiled.produced("y"), "[-, -] partial(sum:tp)");
  EXPECT_EQ(compiled.decisions.outputs.at(compiled.value("y")).str(compiled.mesh), "[-, -]");
}

// A value cut as 3·2 meets one cut as 2·3: the operator has one cut, and the other operand arrives whole or cut anew.
TEST(Decisions, OperandsOfOtherPartsAreLaidOutInTheOperators) {
  Compiled compiled("m (float[6, 4] x, float[6, 4] z) => (float[6, 4] y) { y = Add (x, z) }", "x=2,y=3",
                    {{"x", "[2{x}*3, -]"}, {"z", "[3{y}*2, -]"}});
  const NodeDecision& add = compiled.decisions.nodes[0];
  EXPECT_EQ(local_shape(add.operands[0], compiled.mesh), local_shape(add.operands[1], compiled.mesh));
  EXPECT_EQ(local_shape(add.operands[0], compiled.mesh), local_shape(add.results[0], compiled.mesh));
}

TEST(Decisions, AWrongClaimAboutAPartialSumIsAnError) {
  EXPECT_NO_THROW(Compiled(kProduct, "tp=2", {{"w", "[tp, -]"}, {"h", "[-, -] partial(sum:tp)"}}));
  try {
    Compiled(kProduct, "tp=2", {{"w", "[-, tp]"}, {"h", "[-, ?] partial(sum:tp)"}});
    ADD_FAILURE() << "nothing is contracted over tp";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), testing::HasSubstr("'h' does not come out as partial(sum:tp)"));
  }
}

}  // namespace
}  // namespace tessera::spmd

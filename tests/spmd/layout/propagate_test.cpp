#include "tessera/spmd/layout/propagate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/compiled.h"
#include "tessera/base/error.h"

namespace tessera::spmd {
namespace {

using testing::HasSubstr;

constexpr std::string_view kLayer =
    "m (float[8, 6] x) => (float[8, 4] y) <float[6, 4] w, float[4] c> {\n"
    "  h = MatMul (x, w)\n"
    "  s = Add (h, c)\n"
    "  y = Relu (s)\n"
    "}\n";

// "x[0]: reason" of every axis that found no place.
std::vector<std::string> lost(const Compiled& compiled) {
  std::vector<std::string> all;
  for (const Lost& lost : compiled.propagation.lost)
    all.push_back(fmt::format("{} of {}[{}]: {}", lost.axis.str(compiled.mesh),
                              compiled.layout->slots[lost.slot].value->name, lost.dim, lost.reason));
  return all;
}

TEST(Propagation, GoesForwardsAndBackwards) {
  Compiled forwards(kLayer, "dp=2", {{"x", "[dp, ?]"}});
  EXPECT_EQ(forwards.propagated("y"), "[8{dp}, -]");
  Compiled backwards(kLayer, "tp=2", {{"y", "[?, tp]"}});
  EXPECT_EQ(backwards.propagated("w"), "[-, 4{tp}]");
  EXPECT_EQ(backwards.propagated("c"), "[4{tp}]");
  EXPECT_EQ(backwards.propagated("x"), "[-, -]");
}

TEST(Propagation, IsTheSameEachTime) {
  Compiled::Orders orders{{"x", "[?, tp]"}, {"y", "[tp, ?]"}, {"w", "[?, ?]"}};
  Compiled one(kLayer, "tp=2", orders), other(kLayer, "tp=2", orders);
  for (const char* name : {"x", "w", "h", "s", "y"}) EXPECT_EQ(one.propagated(name), other.propagated(name));
  EXPECT_EQ(one.propagation.rounds, other.propagation.rounds);
}

// An activation gets its layout from its neighbours before it gets one from a weight.
TEST(Propagation, PassesElementsThroughFirst) {
  Compiled compiled(
      "m (float[8, 8] x) => (float[8, 8] y) <float[8, 8] w> {\n"
      "  a = Relu (x)\n"
      "  h = MatMul (a, w)\n"
      "  y = Neg (h)\n"
      "}\n",
      "tp=2", {{"x", "[tp, ?]"}, {"w", "[tp, ?]"}});
  EXPECT_EQ(compiled.propagated("a"), "[8{tp}, -]");
}

TEST(Propagation, ObeysClosedDimensionsAndSaysWhatTheyLost) {
  Compiled compiled(kLayer, "dp=2", {{"x", "[dp, -]"}, {"y", "[-, -]"}});
  EXPECT_EQ(compiled.propagated("s"), "[8{dp}, -]");
  EXPECT_EQ(compiled.propagated("y"), "[-, -]");
  EXPECT_THAT(lost(compiled), testing::Contains("dp of y[0]: the dimension is closed by an annotation"));
}

TEST(Propagation, GivesAnAxisThatTwoFactorsWantToOne) {
  Compiled compiled(kLayer, "tp=2", {{"x", "[tp, -]"}, {"w", "[-, tp]"}});
  EXPECT_EQ(compiled.propagated("h"), "[8{tp}, -]") << "x is the larger of two annotated tensors";
  EXPECT_THAT(lost(compiled), testing::Contains(HasSubstr("splits another dimension over it")));
}

TEST(Propagation, TakesTheFirstOfTwoAnnotationsOfOneValue) {
  Compiled compiled(kLayer, "dp=2,tp=2", {{"x", "[dp, ?]"}, {"x", "[-, tp]"}});
  EXPECT_EQ(compiled.propagated("x"), "[8{dp}, 6{tp}]") << "the second still fills what the first left open";
}

TEST(Propagation, RemembersWhoPutAnAxisThere) {
  Compiled compiled(kLayer, "dp=2", {{"x", "[dp, ?]"}});
  auto origin = [&](std::string_view name) { return compiled.slot(name).dims[0].parts[0].origins.at(0); };
  EXPECT_EQ(origin("x").by, "annotation");
  EXPECT_EQ(origin("x").round, 0);
  EXPECT_EQ(origin("s").by, "Add producing 's' from 'h'");
  EXPECT_GT(origin("s").round, 0);
}

TEST(Propagation, PutsAnAxisOnThePartThatCanBeSplit) {
  Compiled heads(
      "m (bool[2, 12] x, int64[5] i) => (bool[2, 5, 4] y) {\n"
      "  shape = Constant <value_ints = [2, 3, 4]> ()\n"
      "  r = Reshape (x, shape)\n"
      "  y = Gather <axis = 1> (r, i)\n"
      "}\n",
      "tp=2", {{"x", "[-, tp]"}});
  EXPECT_EQ(heads.propagated("x"), "[-, 3·4{tp}]") << "a lookup of booleans needs the three whole";
}

TEST(Propagation, ContinuesALargerAxisOnTheNextPart) {
  Compiled heads(
      "m (float[2, 12] x) => (float[2, 2, 6] y) {\n"
      "  shape = Constant <value_ints = [2, 2, 6]> ()\n"
      "  y = Reshape (x, shape)\n"
      "}\n",
      "tp=4", {{"x", "[-, tp]"}});
  EXPECT_EQ(heads.propagated("y"), "[-, 2{tp:(1)2}, 6{tp:(2)2}]");
}

// Digits of 6 = 2·3 and of 6 = 3·2 cannot be in one sharding, so the second does not reach the first's tensors.
TEST(Propagation, KeepsSubAxesOfDifferentRadicesApart) {
  Compiled compiled("m (float[4, 4] x) => (float[4, 4] y) { y = Relu (x) }", "x=6",
                    {{"x", "[x:(1)2, ?]"}, {"y", "[?, x:(3)2]"}});
  EXPECT_EQ(compiled.propagated("x"), "[4{x:(1)2}, -]");
  EXPECT_EQ(compiled.propagated("y"), "[-, 4{x:(3)2}]");
}

TEST(Propagation, RefusesPartsThatCutAcrossAnOperators) {
  try {
    Compiled(
        "m (float[2, 12] x) => (float[2, 3, 4] y) {\n"
        "  shape = Constant <value_ints = [2, 3, 4]> ()\n"
        "  y = Reshape (x, shape)\n"
        "}\n",
        "x=5", {{"x", "[-, 6{x}*2]"}});
    ADD_FAILURE() << "3 pairs of pairs are not split over 5 ranks";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), HasSubstr("the operators around it see the parts 3*2*2"));
  }
}

}  // namespace
}  // namespace tessera::spmd

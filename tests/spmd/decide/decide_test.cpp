#include "tessera/spmd/decide/decide.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/compiled.h"
#include "tessera/base/error.h"
#include "tessera/spmd/decide/versions.h"

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

// (a + b) * (a + b) is not a * a + b * b.
TEST(Decisions, AProductOfAPartialSumWithItselfIsNotPartial) {
  Compiled compiled(
      "m (float[8, 6] x) => (float[8, 4] y) <float[6, 4] w> {\n"
      "  h = MatMul (x, w)\n"
      "  y = Mul (h, h)\n"
      "}\n",
      "tp=2", {{"w", "[tp, -]"}});
  EXPECT_EQ(compiled.produced("h"), "[-, -] partial(sum:tp)");
  EXPECT_EQ(compiled.produced("y"), "[-, -]");
  EXPECT_EQ(compiled.communication(), "h: AllReduce tp");
}

TEST(Decisions, SumsOverTwoAxesAreReducedWhereTheyMeet) {
  constexpr std::string_view kSum =
      "m (float[8, 6] x) => (float[8, 4] y) <float[6, 4] v, float[6, 4] w> {\n"
      "  a = MatMul (x, v)\n"
      "  b = MatMul (x, w)\n"
      "  s = Add (a, b)\n"
      "  y = Relu (s)\n"
      "}\n";
  // One rank of each row adds a term that it shares with the others.
  Compiled different(kSum, "dp=2,tp=2", {{"v", "[dp, -]"}, {"w", "[tp, -]"}});
  EXPECT_EQ(different.produced("s"), "[-, -] partial(sum:dp, sum:tp)");
  EXPECT_EQ(different.communication(), "s: AllReduce dp,tp");
  Compiled within(kSum, "dp=2,tp=2", {{"v", "[dp, -]"}, {"w", "[{dp,tp}, -]"}});
  EXPECT_EQ(within.produced("s"), "[-, -] partial(sum:dp, sum:tp)");
  EXPECT_EQ(within.communication(), "s: AllReduce dp,tp");
  Compiled equal(kSum, "dp=2,tp=2", {{"v", "[{dp,tp}, -]"}, {"w", "[{dp,tp}, -]"}});
  EXPECT_EQ(equal.produced("s"), "[-, -] partial(sum:dp, sum:tp)");
  EXPECT_EQ(equal.communication(), "s: AllReduce dp,tp");
}

// Two reductions of a number per row would move more than the gather of the other number. The other uses disagree with
// the Softmax, so that a second pass decides again with what they want.
TEST(Decisions, SoftmaxOverShortRowsIsGatheredInASecondPassToo) {
  Compiled compiled(
      "m (float[64, 2] x) => (float[64, 2] y, float[64, 2] z) {\n"
      "  r = Relu (x)\n"
      "  y = Softmax <axis = 1> (r)\n"
      "  t = Exp (r)\n"
      "  z = Neg (t)\n"
      "}\n",
      "tp=2", {{"x", "[-, tp]"}, {"t", "[tp, -]"}, {"z", "[-, tp]"}});
  EXPECT_EQ(compiled.produced("y"), "[-, -]");
}

// Sums of 16-bit operands move as float32, and are rounded once they are reduced.
TEST(Decisions, SixteenBitSumsArePricedInFloat32) {
  constexpr std::string_view kSixteen =
      "m (bfloat16[64, 64] x) => (bfloat16[64, 64] y) <bfloat16[64, 64] w> {\n"
      "  h = MatMul (x, w)\n"
      "  y = Relu (h)\n"
      "}\n";
  const Moved wide{DType::bfloat16, true}, narrow{DType::bfloat16, false};
  Compiled compiled(kSixteen, "tp=2", {{"w", "[tp, -]"}});
  const Sharding partial = parse_sharding("[-, -] partial(sum:tp)", compiled.value("h")->shape(), compiled.mesh, "h");
  const Sharding scattered = parse_sharding("[tp, -]", compiled.value("h")->shape(), compiled.mesh, "h");
  const Sharding whole = parse_sharding("[-, -]", compiled.value("h")->shape(), compiled.mesh, "h");
  const auto price = [&](const Sharding& from, const Sharding& to, const Moved& of) {
    return cheapest_route({from}, to, of, Costs(compiled.mesh, compiled.hints))->cost;
  };
  EXPECT_EQ(price(partial, whole, wide), 2 * price(partial, whole, narrow));
  EXPECT_EQ(price(scattered, whole, wide), price(scattered, whole, narrow)) << "it has been rounded";
  const Sharding largest = parse_sharding("[-, -] partial(max:tp)", compiled.value("h")->shape(), compiled.mesh, "h");
  EXPECT_EQ(price(largest, whole, wide), price(largest, whole, narrow)) << "nothing is added";
}

// What is made of nothing is made whole where that is wanted, not in parts that are gathered.
TEST(Decisions, RangesAreMadeWhole) {
  Compiled compiled(
      "m (float[8, 6] x, float[4, 6] u) => (float[8, 6] y)\n"
      "  <int64 zero = {0}, int64 four = {4}, int64 one = {1}, int64[2] list = {4, 1}> {\n"
      "  r = Range (zero, four, one)\n"
      "  i = Reshape (r, list)\n"
      "  s = ScatterND <reduction = \"add\"> (x, i, u)\n"
      "  y = Relu (s)\n"
      "}\n",
      "tp=2", {{"u", "[tp, -]"}});
  EXPECT_EQ(compiled.produced("r"), "[-]");
  EXPECT_EQ(compiled.communication(), "u: AllGather tp");
}

// Few updates are gathered; of many, ranks reduce what they made; and so they do of few, if that meets another sum.
TEST(Decisions, UpdatesAreGatheredOrTheirResultIsReduced) {
  const auto scattered = [](int updates, std::string_view reduction) {
    return fmt::format(
        "m (float[8, 6] x, int64[{0}, 1] i, float[{0}, 6] u) => (float[8, 6] y) {{\n"
        "  s = ScatterND <reduction = \"{1}\"> (x, i, u)\n"
        "  y = Relu (s)\n"
        "}}\n",
        updates, reduction);
  };
  const Compiled::Orders split = {{"i", "[tp, -]"}, {"u", "[tp, -]"}};
  EXPECT_EQ(Compiled(scattered(4, "add"), "tp=2", split).produced("s"), "[-, -]");
  EXPECT_EQ(Compiled(scattered(400, "add"), "tp=2", split).produced("s"), "[-, -] partial(sum:tp)");
  EXPECT_EQ(Compiled(scattered(400, "max"), "tp=2", split).produced("s"), "[-, -] partial(max:tp)");
  EXPECT_EQ(Compiled(scattered(400, "none"), "tp=2", split).produced("s"), "[-, -]");
  Compiled::Orders met = split;
  met.push_back({"w", "[tp, -]"});
  Compiled meets(
      "m (float[8, 6] x, int64[4, 1] i, float[4, 6] u, float[8, 10] a) => (float[8, 6] y) <float[10, 6] w> {\n"
      "  s = ScatterND <reduction = \"add\"> (x, i, u)\n"
      "  p = MatMul (a, w)\n"
      "  t = Add (s, p)\n"
      "  y = Relu (t)\n"
      "}\n",
      "tp=2", met);
  EXPECT_EQ(meets.produced("s"), "[-, -] partial(sum:tp)");
  EXPECT_EQ(meets.communication(), "t: AllReduce tp");
  met.pop_back();
  Compiled both(
      "m (float[8, 6] x, int64[4, 1] i, float[4, 6] u) => (float[8, 6] y) {\n"
      "  s = ScatterND <reduction = \"add\"> (x, i, u)\n"
      "  r = ScatterND <reduction = \"add\"> (x, i, u)\n"
      "  t = Add (s, r)\n"
      "  y = Relu (t)\n"
      "}\n",
      "tp=2", met);
  EXPECT_EQ(both.produced("s"), "[-, -]") << "neither is reduced anyway";
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

// One value is annotated: the contraction is split though neither operand is.
TEST(Decisions, APartialSumIsAskedOfWhatMakesIt) {
  const Compiled compiled(kProduct, "tp=2", {{"h", "[-, -] partial(sum:tp)"}});
  EXPECT_EQ(compiled.produced("h"), "[-, -] partial(sum:tp)");
  const Compiled shared(kProduct, "dp=2,tp=2", {{"w", "[dp, -]"}, {"h", "[-, -] partial(sum:dp)"}});
  EXPECT_EQ(shared.produced("h"), "[-, -] partial(sum:dp)");
  const Compiled handed_on(
      "m (float[8, 6] x) => (float[8, 4] y) <float[6, 4] w, float c = {2}> { h = MatMul (x, w) y = Mul (h, c) }",
      "tp=2", {{"y", "[-, -] partial(sum:tp)"}});
  EXPECT_EQ(handed_on.produced("y"), "[-, -] partial(sum:tp)");
}

TEST(Decisions, APartialSumIsAskedOfNothingTwice) {
  // One of the products may be a sum over tp already.
  using Annotated = std::vector<std::pair<std::string, std::string>>;
  for (const Annotated& also : {Annotated{}, {{"w", "[tp, -]"}}, {{"u", "[tp, -]"}}}) {
    Annotated all = also;
    all.emplace_back("y", "[-, -] partial(sum:tp)");
    const Compiled sums(
        "m (float[8, 6] x) => (float[8, 4] y) <float[6, 4] w, float[6, 4] u> "
        "{ h = MatMul (x, w) g = MatMul (x, u) y = Add (h, g) }",
        "tp=2", all);
    for (const char* product : {"h", "g", "y"}) EXPECT_EQ(sums.produced(product), "[-, -] partial(sum:tp)") << product;
  }
  // As many ways lead from here to x as two to the power of forty.
  std::string nodes = "x0 = Neg (x)";
  for (int i = 1; i <= 40; ++i) nodes += fmt::format(" n{0} = Neg (x{1}) x{0} = Add (n{0}, x{1})", i, i - 1);
  EXPECT_THROW(
      Compiled("m (float[8, 4] x) => (float[8, 4] x40) {" + nodes + "}", "tp=2", {{"x40", "[-, -] partial(sum:tp)"}}),
      Error);
}

TEST(Decisions, AWrongClaimAboutAPartialSumIsAnError) {
  EXPECT_NO_THROW(Compiled(kProduct, "tp=2", {{"w", "[tp, -]"}, {"h", "[-, -] partial(sum:tp)"}}));
  try {
    Compiled(kProduct, "tp=2", {{"w", "[-, tp]"}, {"h", "[-, ?] partial(sum:tp)"}});
    ADD_FAILURE() << "nothing is contracted over tp";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), testing::HasSubstr("'h' is annotated partial(sum:tp), but its producer does not reduce"));
  }
}

// Layers between the first and the last, each of which gathers its input.
int64_t decisions_computed_for(int layers) {
  std::string weights, nodes;
  Compiled::Orders orders;
  for (int i = 0; i < layers; ++i) {
    weights += fmt::format("{}float[8, 8] w{}", i ? ", " : "", i);
    nodes += fmt::format("  p{0} = MatMul (h{0}, w{0})\n  r{0} = Relu (p{0})\n  h{1} = Add (r{0}, p{0})\n", i, i + 1);
    orders.emplace_back(fmt::format("w{}", i), "[-, tp]");
  }
  const std::string text =
      fmt::format("m (float[4, 8] h0) => (float[4, 8] h{}) <{}> {{\n{}}}\n", layers, weights, nodes);
  const Compiled compiled(text, "tp=2", orders);
  EXPECT_EQ(compiled.produced("p1"), "[-, 8{tp}]");
  EXPECT_EQ(compiled.decisions.nodes.size(), static_cast<size_t>(3 * layers));
  return compiled.decisions.computed;
}

TEST(Decisions, LikeLayersAreDecidedOnce) {
  const int64_t computed = decisions_computed_for(6);
  EXPECT_GT(computed, 0);
  EXPECT_EQ(decisions_computed_for(40), computed);
}

// What only a context tells apart: the same products, of operands in different layouts.
TEST(Decisions, LikeNodesInOtherContextsAreDecidedAlone) {
  Compiled compiled(
      "m (float[8, 6] x, float[8, 6] z) => (float[8, 4] y, float[8, 4] u) <float[6, 4] v, float[6, 4] w> {\n"
      "  a = Relu (x)\n"
      "  b = Relu (z)\n"
      "  y = MatMul (a, v)\n"
      "  u = MatMul (b, w)\n"
      "}\n",
      "dp=2", {{"x", "[dp, -]"}, {"z", "[-, -]"}});
  EXPECT_EQ(compiled.produced("a"), "[8{dp}, -]");
  EXPECT_EQ(compiled.produced("b"), "[-, -]");
  EXPECT_EQ(compiled.produced("y"), "[8{dp}, -]");
  EXPECT_EQ(compiled.produced("u"), "[-, -]");
}

}  // namespace
}  // namespace tessera::spmd

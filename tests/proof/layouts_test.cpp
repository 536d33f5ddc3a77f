#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "spmd/compiled.h"
#include "tessera/base/error.h"
#include "tessera/proof/prove.h"
#include "tessera/spmd/partition/specialize.h"

namespace tessera::proof {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A model's program, to be damaged.
struct Spoilt {
  std::shared_ptr<spmd::Program> program;

  Spoilt(std::string_view text, std::string_view mesh, const spmd::Compiled::Orders& orders)
      : program(std::make_shared<spmd::Program>(spmd::Compiled(text, mesh, orders).program())) {
    EXPECT_TRUE(report().good());
  }

  Node* find(std::string_view op) {
    for (const auto& node : program->graph->nodes())
      if (node->op_type == op) return node.get();
    return nullptr;
  }
  Report report() const { return prove(*runtime::RankPrograms::same(program)); }
  Finding clash() const {
    Report found = report();
    EXPECT_EQ(found.findings.size(), 1u);
    return found.good() ? Finding{"none", "", {}} : found.findings.front();
  }
};

constexpr std::string_view kRowParallel =
    "m (float[b, 4] x) => (float[b, 6] y) <float[4, 6] w> {\n"
    "  p = MatMul (x, w)\n"
    "  y = Relu (p)\n"
    "}\n";

TEST(Layouts, APartialSumIsReducedBeforeItIsUsed) {
  Spoilt spoilt(kRowParallel, "tp=2", {{"w", "[tp, -]"}});
  Node* reduce = spoilt.find("AllReduce");
  spoilt.program->graph->replace_uses(reduce->outputs[0], reduce->inputs[0]);
  spoilt.program->graph->erase(reduce);
  Finding finding = spoilt.clash();
  EXPECT_EQ(finding.rule, "partial");
  EXPECT_THAT(finding.message, AllOf(HasSubstr("Relu"), HasSubstr("'p' as if it were whole"),
                                     HasSubstr("partial(sum:tp)"), HasSubstr("reduce it first")));
}

TEST(Layouts, WhatIsWholeIsNotReduced) {
  Spoilt spoilt(kRowParallel, "dp=2,tp=2", {{"w", "[tp, -]"}});
  spoilt.find("AllReduce")->set("axes", std::vector<std::string>{"dp", "tp"});
  EXPECT_THAT(spoilt.clash().message, HasSubstr("would be counted more than once"));
}

TEST(Layouts, AReductionIsOverTheAxesThatArePartial) {
  Spoilt spoilt(kRowParallel, "dp=2,tp=2", {{"w", "[tp, -]"}});
  spoilt.find("AllReduce")->set("axes", std::vector<std::string>{"dp"});
  EXPECT_EQ(spoilt.clash().rule, "layout");
}

TEST(Layouts, ACommunicationMovesTheValueThatItNames) {
  Spoilt spoilt(kRowParallel, "tp=2", {{"w", "[tp, -]"}});
  spoilt.find("AllReduce")->set("value", std::string("q"));
  EXPECT_THAT(spoilt.clash().message, HasSubstr("says that it moves 'q', but its operand is a part of 'p'"));
}

TEST(Layouts, AnOutputIsNotPartial) {
  Spoilt spoilt("m (float[b, 4] x) => (float[b, 6] y) <float[4, 6] w> { y = MatMul (x, w) }\n", "tp=2",
                {{"w", "[tp, -]"}});
  Node* reduce = spoilt.find("AllReduce");
  spoilt.program->outputs[0].value = reduce->inputs[0];
  spoilt.program->graph->replace_uses(reduce->outputs[0], reduce->inputs[0]);
  spoilt.program->graph->erase(reduce);
  EXPECT_THAT(spoilt.clash().message, HasSubstr("the output 'y' is"));
}

TEST(Layouts, OperatorsAreGivenWholeWhatTheyNeedWhole) {
  Spoilt spoilt("m (float[6, 2] t, int64[3, 2] i) => (float[3, 2] y) { y = GatherElements <axis = 0> (t, i) }\n",
                "tp=2", {{"t", "[tp, -]"}});
  Node* lookup = spoilt.find("GatherElementsShard");
  lookup->op_type = "GatherElements";
  lookup->domain = "";
  for (size_t i : {3, 2}) spoilt.program->graph->set_input(lookup, i, nullptr);
  lookup->inputs.resize(2);
  EXPECT_THAT(spoilt.clash().message, AllOf(HasSubstr("GatherElements"), HasSubstr("needs it whole")));
}

// From {x,y} to {y,x}: member 1 of 2x3 has piece 1, which member 2 (x=0, y=2) does not want, but member 3 (x=1, y=0).
TEST(Layouts, APermutationGivesEveryRankThePieceThatItStates) {
  const auto reordered = [] {
    return Spoilt("m (float[12, 2] t) => (float[12, 2] y) { y = Relu (t) }\n", "x=2,y=3",
                  {{"t", "[{x,y}, -]"}, {"y", "[{y,x}, -]"}});
  };
  Spoilt right = reordered();
  ASSERT_NE(right.find("Permute"), nullptr);
  const auto targets = right.find("Permute")->get_ints("targets");
  EXPECT_EQ(targets, (std::vector<int64_t>{0, 3, 1, 4, 2, 5}));
  for (std::vector<int64_t> wrong : {std::vector<int64_t>{0, 1, 2, 3, 4, 5}, {0, 3, 1, 4, 5, 2}, {0, 3, 1, 4, 2, -1}}) {
    Spoilt spoilt = reordered();
    spoilt.find("Permute")->set("targets", wrong);
    EXPECT_FALSE(spoilt.report().good());
  }
}

TEST(Layouts, AnAxisOfOneRankSplitsNothing) {
  Spoilt gathered("m (int32[6] t) => (int32[6] y) <int64 a = {0}> { y = CumSum (t, a) }\n", "x=1,y=2",
                  {{"y", "[2{y,x}*3]"}});
  ASSERT_NE(gathered.find("AllGather"), nullptr);
  EXPECT_TRUE(gathered.report().good());
}

// Other operators see the image's columns as two by two.
TEST(Layouts, WindowsMayReadWhatLiesInSeveralParts) {
  Spoilt pooled(
      "m () => (float[3, 3, 1, 2] y, float[3, 4] z) <float[3, 3, 2, 4] t, int64[2] a = {1, 2}> {"
      " y = AveragePool <kernel_shape = [2, 1], strides = [1, 2]> (t) z = ReduceSum <keepdims = 0> (t, a) }\n",
      "tp=2", {{"t", "[-, -, -, 4{tp}?]"}, {"z", "[-, 2*2{tp}?]"}});
  ASSERT_NE(pooled.find("AveragePool"), nullptr);
  EXPECT_TRUE(pooled.report().good());
}

// The nine elements are split unevenly, so that the two digits are not one axis; the eight are split by the axis.
TEST(Layouts, PiecesMayLieWhereTheyAreReadOverDigitsOfAnAxis) {
  Spoilt joined("m (float[1] a, float[8] b) => (float[9] y) { y = Concat <axis = 0> (a, b) }\n", "x=4",
                {{"b", "[8{x}]"}, {"y", "[9{x:(1)2,x:(2)2}?]"}});
  EXPECT_EQ(joined.find("Recv"), nullptr);
  EXPECT_TRUE(joined.report().good());
}

TEST(Types, ResultsAreOfTheStatedExtents) {
  Spoilt spoilt(kRowParallel, "tp=2", {{"w", "[-, tp]"}});
  Node* product = spoilt.find("MatMul");
  spoilt.program->placements.erase(product->outputs[0]);
  product->outputs[0]->type.shape->at(1) = 5;
  Finding finding = spoilt.clash();
  EXPECT_EQ(finding.rule, "type");
  EXPECT_THAT(finding.message, AllOf(HasSubstr("MatMul"), HasSubstr("on rank 0"), HasSubstr("5] is stated")));
}

TEST(Types, WhatIsReadBeforeTheRunIsKnownByThen) {
  Spoilt spoilt(
      "m (float[4] x, int64[1] i) => (float[2] y, int64[1] j) { y = Slice (x, {1}, {3}, {0})  j = Neg (i) }\n", "tp=2",
      {});
  spoilt.program->as_written = true;
  Graph& graph = *spoilt.program->graph;
  for (Value* unknown : {spoilt.find("Neg")->inputs[0], spoilt.find("Neg")->outputs[0]}) {
    graph.set_input(spoilt.find("Slice"), 1, unknown);
    const Finding finding = spoilt.clash();
    EXPECT_EQ(finding.rule, "type");
    EXPECT_THAT(finding.message, AllOf(HasSubstr("Slice"), HasSubstr("operand 1"), HasSubstr("before the run")));
  }
}

// Programs of ranks, in which those at pp=0 make h and those at pp=1 make y, to be damaged one by one.
struct TwoPlaces {
  std::vector<std::shared_ptr<spmd::Program>> ranks;

  explicit TwoPlaces(std::string_view mesh = "pp=2", const spmd::Compiled::Orders& orders = {}) {
    spmd::Program program = spmd::Compiled(
                                "m (float[b, 4] x) => (float[b, 6] y) <float[4, 6] w> {\n"
                                "  h = MatMul (x, w)\n"
                                "  y = Relu (h)\n"
                                "}\n",
                                mesh, orders, {{"h", "pp=0"}, {"y", "pp=1"}})
                                .program();
    for (int64_t rank = 0; rank < program.mesh.size(); ++rank)
      ranks.push_back(std::make_shared<spmd::Program>(spmd::specialize(program, program.mesh.coordinates(rank))));
    EXPECT_EQ(clash(), "none");
  }

  Node* find(int rank, std::string_view op) {
    for (const auto& node : ranks[rank]->graph->nodes())
      if (node->op_type == op) return node.get();
    return nullptr;
  }
  Node* permute(int rank) { return find(rank, "Permute"); }
  std::string clash() const {
    runtime::RankPrograms programs;
    programs.programs.assign(ranks.begin(), ranks.end());
    programs.program_of.resize(ranks.size());
    std::iota(programs.program_of.begin(), programs.program_of.end(), 0);
    Report found = prove(programs);
    return found.good() ? "none" : found.findings.front().message;
  }
};

TEST(Places, WhoHasNothingIsNotAskedToGive) {
  TwoPlaces spoilt;
  for (int rank : {0, 1}) spoilt.permute(rank)->set("targets", std::vector<int64_t>{-1, 0});
  EXPECT_THAT(spoilt.clash(), HasSubstr("has no operand, but needs one"));
}

TEST(Places, ARankUsesOnlyWhatItHas) {
  TwoPlaces spoilt;
  Graph& graph = *spoilt.ranks[0]->graph;
  Value* elsewhere = spoilt.permute(0)->outputs[0];
  Value* result = graph.add_node("Relu", {elsewhere}, {"z"})->outputs[0];
  result->type = elsewhere->type;
  spmd::Placement everywhere = spoilt.ranks[0]->placement(elsewhere);
  everywhere.sharding.at.clear();
  spoilt.ranks[0]->placements[result] = everywhere;
  EXPECT_THAT(spoilt.clash(), AllOf(HasSubstr("Relu producing 'z' uses 'h' on rank 0"), HasSubstr("at(pp=1)")));
}

// h at(pp=0) is sent by (1, 1), the last of four ranks that run one program, to (0, 1).
TEST(Places, NoneOfTheRanksOfAProgramGivesWhatItHasNot) {
  auto program = std::make_shared<spmd::Program>();
  program->mesh = Mesh::parse("pp=2,tp=2");
  program->graph = std::make_unique<Graph>();
  Graph& graph = *program->graph;
  const TensorType type{DType::float32, Shape{4}};
  Value* x = graph.add_input("x", type);
  program->inputs = {{"x", x}};
  Value* h = graph.add_node("Relu", {x}, {"h"})->outputs[0];
  h->type = type;
  const Expr pp = Expr::axis_index("pp"), tp = Expr::axis_index("tp");
  const PlacedAxis place{AxisRef::whole(program->mesh.axes()[0]), 0};
  program->placements[x] = {"x", type, Sharding::replicated(*type.shape)};
  program->placements[h] = {"h", type, Sharding::replicated(*type.shape)};
  program->placements[h].sharding.at = {place};
  auto speak = [&](Node* node) {
    node->set("axes", std::vector<std::string>{"pp"});
    node->set("value", std::string("h"));
    return node;
  };
  speak(graph.add_node("Send", {h, graph.add_expression("to", {pp * tp * 2 - 1}, true)}, {}, spmd::kCommDomain));
  Value* from = graph.add_expression("from", {(1 - pp) * tp * 4 - 1}, true);
  Node* receive = speak(graph.add_node("Recv", {from, graph.constant_int64({4})}, {"arrived"}, spmd::kCommDomain));
  receive->set("dtype", static_cast<int64_t>(type.dtype));
  receive->outputs[0]->type = type;
  runtime::RankPrograms programs;
  programs.programs = {program};
  Report found = prove(programs);
  ASSERT_FALSE(found.good());
  EXPECT_THAT(found.findings.front().message, HasSubstr("uses 'h' on rank 3, but that is [-] at(pp=0)"));
  graph.set_input(graph.nodes()[1].get(), 0, x);
  found = prove(programs);
  EXPECT_TRUE(found.good()) << found.findings.front().message;
}

TEST(Places, WhatIsMadeAtAPlaceLivesThere) {
  TwoPlaces spoilt;
  spoilt.ranks[1]->placements[spoilt.ranks[1]->graph->outputs[0]].sharding.at.clear();
  EXPECT_THAT(spoilt.clash(), HasSubstr("makes 'y' from a value only at(pp=1)"));
}

TEST(Places, ACommunicationLeadsWhereItSays) {
  TwoPlaces spoilt;
  for (int rank : {0, 1}) spoilt.ranks[rank]->placements[spoilt.permute(rank)->outputs[0]].sharding.at[0].index = 0;
  EXPECT_THAT(spoilt.clash(), HasSubstr("does not lead from [-, -] at(pp=0) to [-, -] at(pp=0)"));
}

// The receiver has no operand, so nothing in its own model states the layout of its result.
TEST(Places, GiverAndReceiverStateOneLayout) {
  TwoPlaces spoilt("pp=2,tp=2", {{"w", "[tp, -]"}});
  for (int rank : {0, 1}) {
    Graph& graph = *spoilt.ranks[rank]->graph;
    Node* reduce = spoilt.find(rank, "AllReduce");
    Node* permute = spoilt.find(rank, "Permute");
    spoilt.ranks[rank]->placements[permute->outputs[0]].sharding.partial =
        spoilt.ranks[rank]->placement(reduce->inputs[0]).sharding.partial;
    graph.replace_uses(reduce->outputs[0], reduce->inputs[0]);
    graph.erase(reduce);
  }
  EXPECT_THAT(spoilt.clash(),
              AllOf(HasSubstr("ranks 0 and 2"), HasSubstr("one states [-, -] partial(sum:tp) at(pp=1) as the result, "
                                                          "the other [-, -] at(pp=1)")));
}

TEST(Places, AReceiverStatesALayout) {
  TwoPlaces spoilt;
  spoilt.ranks[1]->placements.erase(spoilt.permute(1)->outputs[0]);
  EXPECT_THAT(spoilt.clash(), HasSubstr("the other no layout"));
}

// With its padding back, a convolution of a part has a result of the right shape, but takes zeros for the neighbour's
// rows.
TEST(Layouts, WindowsDoNotEndAtTheBorderOfAPart) {
  Spoilt spoilt(
      "m (float[b, 2, 8, 5] x) => (float[b, 3, 8, 3] y) <float[3, 2, 3, 3] w> {\n"
      "  y = Conv <pads = [1, 0, 1, 0]> (x, w)\n"
      "}\n",
      "tp=2", {{"x", "[-, -, tp, -]"}});
  Node* conv = spoilt.find("Conv");
  spoilt.program->graph->set_input(conv, 0, spoilt.program->inputs[0].value);
  conv->set("pads", Dims{1, 0, 1, 0});
  Finding finding = spoilt.clash();
  EXPECT_EQ(finding.rule, "layout");
  EXPECT_THAT(finding.message, HasSubstr("needs it whole: dimension 2 of 'x' is [8{tp}]"));
}

TEST(Layouts, WindowsMayLieWithinParts) {
  constexpr std::string_view kPool =
      "m (float[b, 2, 8, 6] x) => (float[b, 2, 4, 3] y) {\n"
      "  y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)\n"
      "}\n";
  Spoilt fits(kPool, "tp=2", {{"x", "[-, -, tp, -]"}});
  EXPECT_EQ(fits.find("Recv"), nullptr);
  Spoilt reaches_over(kPool, "tp=2", {{"x", "[-, -, -, tp]"}});
  EXPECT_NE(reaches_over.find("Recv"), nullptr) << "the first rank has 3 columns, and reads 4";
}

// A message that comes to the wrong rank, or too short, is a clash.
TEST(Layouts, HalosComeFromThoseThatHaveThem) {
  constexpr std::string_view kConv =
      "m (float[1, 1, 9] x) => (float[1, 1, 9] y) <float[1, 1, 3] w> { y = Conv <pads = [1, 1]> (x, w) }\n";
  Spoilt peer(kConv, "tp=3", {{"x", "[-, -, tp]"}});
  Value* to = peer.find("Send")->inputs[1];
  to->content = std::vector<Expr>{Expr(-1)};
  EXPECT_FALSE(peer.report().good());
  Spoilt piece(kConv, "tp=3", {{"x", "[-, -, tp]"}});
  Node* slice = piece.find("Slice");
  slice->inputs[1]->content = std::vector<Expr>{slice->inputs[1]->content->front() - 1};
  EXPECT_FALSE(piece.report().good());
}

}  // namespace
}  // namespace tessera::proof

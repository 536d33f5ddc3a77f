#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/compiled.h"
#include "tessera/base/error.h"
#include "tessera/proof/prove.h"

namespace tessera::proof {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A model's program, to be spoilt.
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
  Node* gather = spoilt.find("AllGather");
  spoilt.program->graph->replace_uses(gather->outputs[0], gather->inputs[0]);
  spoilt.program->graph->erase(gather);
  EXPECT_THAT(spoilt.clash().message, AllOf(HasSubstr("GatherElements"), HasSubstr("needs it whole")));
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

}  // namespace
}  // namespace tessera::proof

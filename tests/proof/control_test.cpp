// Ranks that communicate in a branch or body decide alike whether they run it; the proof derives that, or refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/dialect/schema.h"
#include "tessera/ir/flow.h"
#include "tessera/ir/text.h"
#include "tessera/ops/op.h"
#include "tessera/proof/prove.h"

namespace tessera::proof {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A program of local values. Inputs and outputs are lists, split over `axis`, or whole where they are scalars.
std::shared_ptr<spmd::Program> program(std::string_view text, const std::string& mesh, const std::string& axis) {
  auto made = std::make_shared<spmd::Program>();
  made->mesh = Mesh::parse(mesh);
  made->graph = std::move(parse_text(std::string(text)).graph);
  for (const auto& node : made->graph->nodes())
    if (node->domain == spmd::kCommDomain)
      dialect::infer_node(*node, made->mesh);
    else
      ops::op_of(*node).infer(*node);
  const auto place = [&](const Value* value) {
    const bool is_list = value->rank() == 1;
    const Shape global = is_list ? Shape{8} : Shape{};
    made->placements[value] = {value->name,
                               {value->dtype(), global},
                               parse_sharding(is_list ? "[" + axis + "]" : "[]", global, made->mesh, value->name)};
  };
  for (Value* value : made->graph->inputs) made->inputs.push_back({value->name, value}), place(value);
  for (Value* value : made->graph->outputs) made->outputs.push_back({value->name, value}), place(value);
  made->graph->verify("test");
  return made;
}

Finding finding(const std::shared_ptr<spmd::Program>& of) {
  const Report report = prove(*runtime::RankPrograms::same(of));
  return report.good() ? Finding{"none", "", {}} : report.findings.front();
}

// While a number that is computed from the rank's part of x is below 9: h is what all ranks have of it.
std::string while_below(const std::string& condition) {
  return R"(<ir_version: 10, opset_import: ["" : 24]>
    g (float[4] x, float start) => (float h) <float limit = {9}> {
      i = tessera.flow.Loop ("", "")
      v = tessera.flow.Carry (start, i)
      own = ReduceSum <keepdims = 0> (x)
      sum = Add (v, own)
      all = tessera.comm.AllReduce <axes = ["tp"], value = "sum", reduction = "sum"> (sum)
      more = Less ()" +
         condition + R"(, limit)
      held, done = tessera.flow.Next (all, i, v)
      again = tessera.flow.Again (i, more, done)
      h = tessera.flow.Last (v, again)
    })";
}

TEST(Control, IsGoodWhereAllRanksComputeTheSameCondition) {
  EXPECT_EQ(finding(program(while_below("all"), "tp=2", "tp")).message, "");
}

TEST(Control, IsRefusedWhereRanksMayRunAnotherNumberOfIterations) {
  const Finding found = finding(program(while_below("own"), "tp=2", "tp"));
  EXPECT_EQ(found.rule, "control");
  EXPECT_THAT(found.message, AllOf(HasSubstr("the condition of tessera.flow.Loop"), HasSubstr("on ranks 0 and 1"),
                                   HasSubstr("each rank takes its own part of the input 'x'")));
}

// In the first iteration a is the same on all ranks; from the second on it is not.
TEST(Control, IsFollowedThroughIterations) {
  const auto text = [](const std::string& added) {
    return R"(<ir_version: 10, opset_import: ["" : 24]>
      g (float[4] x, float start) => (float h) <float limit = {9}> {
        first = ReduceSum <keepdims = 0> (x)
        i = tessera.flow.Loop ("", "")
        a = tessera.flow.Carry (start, i)
        b = tessera.flow.Carry (first, i)
        all = tessera.comm.AllReduce <axes = ["tp"], value = "b", reduction = "sum"> (b)
        more = Less (a, limit)
        next = Add (a, )" +
           added + R"()
        held, done = tessera.flow.Next (next, i, a)
        held2, done2 = tessera.flow.Next (all, i, b)
        again = tessera.flow.Again (i, more, done, done2)
        last = tessera.flow.Last (b, again)
        h = tessera.comm.AllReduce <axes = ["tp"], value = "last", reduction = "sum"> (last)
      })";
  };
  EXPECT_EQ(finding(program(text("all"), "tp=2", "tp")).message, "");
  EXPECT_EQ(finding(program(text("b"), "tp=2", "tp")).rule, "control");
}

// Ranks that nothing in the body connects may go their own ways.
TEST(Control, ConcernsTheRanksThatCommunicate) {
  EXPECT_EQ(finding(program(R"(<ir_version: 10, opset_import: ["" : 24]>
    g (float[4] x) => (float[4] h) <float limit = {9}> {
      i = tessera.flow.Loop ("", "")
      v = tessera.flow.Carry (x, i)
      sum = tessera.comm.AllReduce <axes = ["tp"], value = "v", reduction = "sum"> (v)
      size = ReduceSum <keepdims = 0> (sum)
      more = Less (size, limit)
      held, done = tessera.flow.Next (sum, i, v)
      again = tessera.flow.Again (i, more, done)
      h = tessera.flow.Last (v, again)
    })",
                            "dp=2,tp=2", "dp"))
                .message,
            "");
}

TEST(Control, OfABranchIsHeldToTheSame) {
  const auto text = [](const std::string& decides) {
    return R"(<ir_version: 10, opset_import: ["" : 24]>
      g (float[4] x, float start) => (float h) <float limit = {9}> {
        own = ReduceSum <keepdims = 0> (x)
        condition = Less ()" +
           decides + R"(, limit)
        b = tessera.flow.Branch <taken = 1> (condition)
        inner = tessera.flow.Bring (own, b)
        all = tessera.comm.AllReduce <axes = ["tp"], value = "own", reduction = "sum"> (inner)
        e = tessera.flow.Branch <taken = 0> (condition)
        other = tessera.flow.Bring (start, e)
        j = tessera.flow.Join (b, e)
        h = tessera.flow.Choose (all, other, j)
      })";
  };
  EXPECT_EQ(finding(program(text("start"), "tp=2", "tp")).message, "");
  EXPECT_EQ(finding(program(text("own"), "tp=2", "tp")).rule, "control");
}

// One rank reduces in the body, the other behind it: one would wait after an iteration.
TEST(Control, HoldsCommunicationToItsBody) {
  const auto text = [](bool inside) {
    const std::string reduce = R"(all = tessera.comm.AllReduce <axes = ["tp"], value = "v", reduction = "sum"> (v))";
    return R"(<ir_version: 10, opset_import: ["" : 24]>
      g (int64 n, float start) => (float h) {
        i = tessera.flow.Loop (n, "")
        v = tessera.flow.Carry (start, i)
        )" +
           (inside ? reduce : "all = Neg (v)") +
           R"(
        held, done = tessera.flow.Next (all, i, v)
        again = tessera.flow.Again (i, "", done)
        l = tessera.flow.Last (v, again)
        )" +
           (inside ? "h = Neg (l)"
                   : R"(h = tessera.comm.AllReduce <axes = ["tp"], value = "v", reduction = "sum"> (l))") +
           "}";
  };
  runtime::RankPrograms programs;
  programs.programs = {program(text(true), "tp=2", "tp"), program(text(false), "tp=2", "tp")};
  programs.program_of = {0, 1};
  const Report report = prove(programs);
  ASSERT_FALSE(report.good());
  EXPECT_EQ(report.findings.front().rule, "order");
  EXPECT_THAT(report.findings.front().message, HasSubstr("'the beginning of an iteration'"));
}

}  // namespace
}  // namespace tessera::proof

// Programs on whole weights, and back to the shards that a rank needs of them.
#include "tessera/spmd/partition/whole.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/compiled.h"
#include "tessera/base/error.h"

namespace tessera::spmd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::string_view kFused =
    "m (float[b, 4] x) => (float[b, 12] y) <float[4, 12] w> {\n"
    "  y = MatMul (x, w)\n"
    "}\n";

/// A program whose weight is stored so, on the whole weight.
Program on_whole_weights(const char* layout) {
  return with_whole_edge(Compiled(kFused, "dp=2,tp=3", {{"w", layout}}).program(), {});
}

Node* find(const Program& program, std::string_view op) {
  for (const auto& node : program.graph->nodes())
    if (node->op_type == op) return node.get();
  return nullptr;
}

Shape state_shape(const Program& program) {
  return program.graph->values_of(ValueKind::state).at(0)->shape();
}

TEST(TakeSlicesOnly, LeavesARankTheShardThatItUses) {
  for (const char* layout : {"[-, tp]", "[-, 3*4{dp}]", "[dp, tp]", "[-, {dp,tp}]"}) {
    Program program = on_whole_weights(layout);
    EXPECT_EQ(to_string(state_shape(program)), "[4, 12]");
    ASSERT_NE(find(program, "Slice"), nullptr) << layout;
    take_slices_only(program);
    EXPECT_EQ(state_shape(program), state_shape(Compiled(kFused, "dp=2,tp=3", {{"w", layout}}).program())) << layout;
    EXPECT_EQ(find(program, "Slice"), nullptr) << layout;
  }
}

TEST(TakeSlicesOnly, RefusesASliceThatIsNotOfItsLayout) {
  Program program = on_whole_weights("[-, tp]");
  Node* slice = find(program, "Slice");
  // Every rank takes the shard of the first.
  const std::vector<std::string> stated = {"start", "end"};
  for (size_t i = 1; i <= stated.size(); ++i)
    program.graph->set_input(slice, i, program.graph->add_expression(stated[i - 1], {Expr(i == 1 ? 0 : 4)}));
  try {
    take_slices_only(program);
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("is cut from 'w' by Slice [0] [4] [1], but its layout is [-, 12{tp}]"),
                                    HasSubstr("cut from [-, -] by Slice [4*@tp] [4*@tp + 4] [1]")));
  }
}

TEST(TakeSlicesOnly, KnowsWhatABoundRankCuts) {
  for (int64_t rank : {0, 1, 2}) {
    Program program = on_whole_weights("[-, tp]");
    Node* slice = find(program, "Slice");
    program.graph->set_input(slice, 1, program.graph->add_expression("start", {Expr(4)}));
    program.graph->set_input(slice, 2, program.graph->add_expression("end", {Expr(8)}));
    if (rank == 1)
      EXPECT_NO_THROW(take_slices_only(program, rank));
    else
      EXPECT_THROW(take_slices_only(program, rank), Error);
  }
}

}  // namespace
}  // namespace tessera::spmd

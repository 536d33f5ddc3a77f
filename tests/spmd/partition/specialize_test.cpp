#include "tessera/spmd/partition/specialize.h"

#include <gtest/gtest.h>

#include "spmd/compiled.h"

namespace tessera::spmd {
namespace {

constexpr std::string_view kChain =
    "m (float[b, 8] x) => (float[b, 4] y) <float[8, 8] v, float[8, 4] w> {\n"
    "  h = MatMul (x, v)\n"
    "  y = MatMul (h, w)\n"
    "}\n";

std::vector<std::string> nodes_of(const Program& program) {
  std::vector<std::string> ops;
  for (const auto& node : program.graph->nodes()) ops.push_back(node->op_type);
  return ops;
}

std::vector<std::string> states_of(const Program& program) {
  std::vector<std::string> names;
  for (const Value* state : program.graph->values_of(ValueKind::state)) names.push_back(state->name);
  return names;
}

using Names = std::vector<std::string>;

TEST(Specialize, leaves_a_rank_its_nodes_states_and_outputs) {
  Program program = Compiled(kChain, "pp=3", {}, {{"h", "pp=0"}, {"y", "pp=2"}}).program();
  EXPECT_EQ(nodes_of(program), (Names{"MatMul", "Permute", "MatMul"}));

  Program first = specialize(program, {0});
  EXPECT_EQ(nodes_of(first), (Names{"MatMul", "Permute"}));
  EXPECT_EQ(states_of(first), Names{"v"});
  EXPECT_EQ(first.outputs.at(0).name, "y");
  EXPECT_EQ(first.outputs.at(0).value, nullptr);
  EXPECT_NE(first.graph->nodes()[1]->input(0), nullptr);

  Program between = specialize(program, {1});
  EXPECT_EQ(nodes_of(between), Names{"Permute"}) << "it is of the group";
  EXPECT_EQ(between.graph->nodes()[0]->input(0), nullptr) << "and has nothing to give";

  Program last = specialize(program, {2});
  EXPECT_EQ(nodes_of(last), (Names{"Permute", "MatMul"}));
  EXPECT_EQ(states_of(last), Names{"w"});
  EXPECT_NE(last.outputs.at(0).value, nullptr);
}

TEST(Specialize, keeps_groups_of_other_places_apart) {
  Program program =
      Compiled(kChain, "pp=2,tp=2", {{"v", "[-, tp]"}, {"w", "[tp, -]"}}, {{"h", "pp=1"}, {"y", "pp=1"}}).program();
  EXPECT_EQ(nodes_of(specialize(program, {0, 0})), Names{});
  EXPECT_EQ(nodes_of(specialize(program, {1, 0})), (Names{"MatMul", "MatMul", "AllReduce"}));
}

TEST(Specialize, is_the_program_itself_where_nothing_is_placed) {
  Program program = Compiled(kChain, "tp=2", {{"w", "[tp, -]"}}).program();
  EXPECT_TRUE(placed_axes(program).empty());
  EXPECT_EQ(nodes_of(specialize(program, {1})), nodes_of(program));
}

}  // namespace
}  // namespace tessera::spmd

#include "tessera/passes/init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/compiled.h"

namespace tessera::passes {
namespace {

using spmd::Compiled;
using spmd::Program;
using testing::ElementsAre;

Program with_init(std::string_view text, std::string_view mesh, const Compiled::Orders& orders = {}) {
  Program program = Compiled(text, mesh, orders).program();
  const Topology none;
  std::vector<std::string> notes;
  Context context{none, notes};
  init(program, context);
  return program;
}

std::vector<std::string> names_of(const std::vector<Value*>& values) {
  std::vector<std::string> names;
  for (const Value* value : values) names.push_back(value->name);
  return names;
}

// Each of a, b and c is as large as w. Twice its bytes may be kept; a third tensor of 4 MiB is beyond the 1 MiB beside.
TEST(Init, keeps_at_most_twice_the_bytes_of_a_state_that_many_results_are_made_from) {
  const Program program = with_init(
      "m (float[8, 1024] x) => (float[8, 1024] y) <float[1024, 1024] w> {\n"
      "  a = Exp (w)\n"
      "  b = Tanh (w)\n"
      "  c = Sigmoid (w)\n"
      "  p = MatMul (x, a)\n"
      "  q = MatMul (p, b)\n"
      "  y = MatMul (q, c)\n"
      "}\n",
      "");
  ASSERT_TRUE(program.init);
  EXPECT_EQ(program.init->outputs.size(), 2) << testing::PrintToString(names_of(program.init->outputs));
  EXPECT_EQ(program.derived.size(), 2);
}

// The Cast runs once, on the shard; what moves in every step are 16-bit elements.
TEST(Init, casts_a_shard_before_it_is_gathered) {
  const Program program = with_init(
      "m (bfloat16[512, 64] x) => (bfloat16[512, 32] y) <float[64, 32] w> {\n"
      "  c = Cast <to = 16> (w)\n"
      "  y = MatMul (x, c)\n"
      "}\n",
      "dp=2", {{"w", "[-, dp]"}, {"c", "[-, dp]"}, {"x", "[dp, -]"}, {"y", "[dp, -]"}});
  ASSERT_TRUE(program.init);
  EXPECT_THAT(names_of(program.init->outputs), ElementsAre("c"));
  for (const auto& node : program.init->nodes()) EXPECT_NE(node->domain, spmd::kCommDomain);
  ASSERT_EQ(program.reshards.size(), 1);
  EXPECT_EQ(program.reshards[0].value, "c");
  EXPECT_THAT(program.reshards[0].steps, ElementsAre("AllGather dp"));
  EXPECT_EQ(program.reshards[0].bytes.evaluate(Symbols{}), 64 * 32 / 2 * 2) << "half of it, 2 bytes each";
}

}  // namespace
}  // namespace tessera::passes

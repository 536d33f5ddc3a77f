#include "tessera/passes/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "passes/rings.h"
#include "spmd/compiled.h"

namespace tessera::passes {
namespace {

using spmd::Compiled;
using testing::ElementsAre;

std::vector<std::string> operators(const Graph& graph) {
  std::vector<std::string> types;
  for (const auto& node : graph.nodes()) types.push_back(node->op_type);
  return types;
}

std::vector<std::string> ordered(spmd::Program program) {
  const Topology none;
  std::vector<std::string> notes;
  Context context{none, notes};
  order(program, context);
  program.graph->verify("order");
  return operators(*program.graph);
}

// Two sums over the ranks that only the outputs read.
constexpr std::string_view kSums =
    "m (float[8, 64] x, float[64, 8] a, float[64, 8] b) => (float[8, 8] g, float[8, 8] h) {\n"
    "  p = MatMul (x, a)\n"
    "  q = MatMul (x, b)\n"
    "  g = Neg (p)\n"
    "  h = Neg (q)\n"
    "}\n";

const Compiled::Orders kSplit = {{"x", "[-, dp]"}, {"a", "[dp, -]"}, {"b", "[dp, -]"}};

TEST(Order, reduces_where_the_sum_is_made) {
  Compiled::Orders orders = kSplit;
  orders.insert(orders.end(), {{"g", "[dp, -]"}, {"h", "[dp, -]"}});
  const Compiled split(kSums, "dp=2", orders);
  EXPECT_THAT(operators(*split.program().graph),
              ElementsAre("MatMul", "MatMul", "ReduceScatter", "Neg", "ReduceScatter", "Neg"));
  EXPECT_THAT(ordered(split.program()),
              ElementsAre("MatMul", "ReduceScatter", "MatMul", "ReduceScatter", "Neg", "Neg"));
}

// An all-reduce frees nothing, but may run while the backward pass goes on.
TEST(Order, begins_communication_that_needs_no_more_memory_at_once) {
  const Compiled split(kSums, "dp=2", kSplit);
  EXPECT_THAT(ordered(split.program()), ElementsAre("MatMul", "AllReduce", "MatMul", "AllReduce", "Neg", "Neg"));
}

TEST(Order, frees_large_tensors_early) {
  EXPECT_THAT(ordered(Compiled("m (float[64, 8] x) => (float[] s, float[64, 8] y) {\n"
                               "  a = Exp (x)\n"
                               "  y = Tanh (x)\n"
                               "  s = ReduceSum <keepdims = 0> (a)\n"
                               "}\n",
                               "")
                          .program()),
              ElementsAre("Exp", "ReduceSum", "Tanh"));
}

// Else the state could not be written over.
TEST(Order, leaves_what_a_state_takes_over_behind_those_that_read_the_state) {
  Compiled compiled(
      "m (float[64, 8] x, float[64] v) => (float[64, 8] y, float[8] w1) <float[8] w> {\n"
      "  a = Exp (x)\n"
      "  y = Mul (x, w)\n"
      "  w1 = MatMul (v, a)\n"
      "}\n",
      "");
  EXPECT_THAT(ordered(compiled.program()), ElementsAre("Exp", "MatMul", "Mul"));
  Graph& graph = *compiled.model.graph;
  graph.set_next(graph.find("w"), graph.find("w1"));
  EXPECT_THAT(ordered(compiled.program()), ElementsAre("Exp", "Mul", "MatMul"));
}

// Values are ready before keys, which are sent first; but a rank gets messages in the order in which others send.
TEST(Order, keeps_messages_in_order) {
  const Compiled compiled(
      "m (float[1, 1, 8, 4] q, float[1, 1, 8, 4] x, float[1, 1, 8, 4] w) => (float[1, 1, 8, 4] y) {\n"
      "  v = Neg (w)\n"
      "  k = Exp (x)\n"
      "  y = Attention (q, k, v)\n"
      "}\n",
      "sp=2", {{"q", "[-, -, sp, -]"}, {"x", "[-, -, sp, -]"}, {"w", "[-, -, sp, -]"}, {"y", "[-, -, sp, -]"}});
  spmd::Program program = compiled.program();
  const Topology none;
  std::vector<std::string> notes;
  put_in_rings(program);
  Context context{none, notes};
  order(program, context);
  std::map<std::string, std::vector<std::string>> messages;
  for (const auto& node : program.graph->nodes())
    if (node->domain == spmd::kCommDomain) messages[node->op_type].push_back(node->get_string("value", ""));
  EXPECT_THAT(messages["Send"], ElementsAre("k", "v"));
  EXPECT_THAT(messages["Recv"], ElementsAre("k", "v"));
}

}  // namespace
}  // namespace tessera::passes

#include "tessera/passes/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "passes/rings.h"
#include "spmd/compiled.h"
#include "tessera/passes/forward.h"

namespace tessera::passes {
namespace {

using spmd::Compiled;

// A forward pass whose keys go around a ring, and something later that reads what it makes.
spmd::Program with_ring(std::vector<std::string>& notes) {
  const Compiled compiled(
      "m (float[1, 2, 64, 8] x, float[1, 2, 64, 8] g) => (float[] loss, float[1, 2, 64, 8] dx)\n"
      "<float[8] w, float[8] u, float[8] v> {\n"
      "  q = Mul (x, w)\n"
      "  k = Mul (q, u)\n"
      "  values = Mul (q, v)\n"
      "  y = Attention (q, k, values)\n"
      "  z = Exp (y)\n"
      "  a = Tanh (z)\n"
      "  loss = ReduceSum <keepdims = 0> (a)\n"
      "  dy = Mul (g, y)\n"
      "  dz = Mul (dy, z)\n"
      "  dx = Mul (dz, k)\n"
      "}\n",
      "sp=2", {{"x", "[-, -, sp, -]"}, {"g", "[-, -, sp, -]"}, {"dx", "[-, -, sp, -]"}});
  spmd::Program program = compiled.program();
  notes = put_in_rings(program);
  return program;
}

std::map<std::string, int> messages_of(const spmd::Program& program) {
  std::map<std::string, int> counts;
  for (const auto& node : program.graph->nodes())
    if (node->domain == spmd::kCommDomain) ++counts[node->op_type];
  return counts;
}

// A message comes once: what brought it cannot run again.
TEST(Recompute, leaves_messages_alone) {
  for (const char* what : {"*", "full", "selective"}) {
    SCOPED_TRACE(what);
    std::vector<std::string> notes;
    spmd::Program program = with_ring(notes);
    ASSERT_THAT(notes, testing::ElementsAre(testing::HasSubstr("a ring of sp")));
    const std::map<std::string, int> before = messages_of(program);
    const Topology none;
    Context context{none, notes};
    context.recompute = Recompute::parse(what);
    recompute(program, context);
    EXPECT_EQ(messages_of(program), before);
    program.graph->verify("recompute");
  }
}

// What is sent is not read by a later pass.
TEST(Recompute, needs_a_backward_pass_beside_messages) {
  const Compiled compiled(
      "m (float[1, 2, 64, 8] x) => (float[1, 2, 64, 8] y) <float[8] w, float[8] u, float[8] v> {\n"
      "  q = Mul (x, w)\n  k = Mul (x, u)\n  values = Mul (x, v)\n  y = Attention (q, k, values)\n}\n",
      "sp=2", {{"x", "[-, -, sp, -]"}, {"y", "[-, -, sp, -]"}});
  spmd::Program program = compiled.program();
  put_in_rings(program);
  const LiveBytes live(program);
  const Forward forward(program, live);
  for (const auto& node : program.graph->nodes()) {
    EXPECT_TRUE(forward.contains(node.get())) << node->label();
    for (const Value* result : node->outputs) EXPECT_TRUE(!result || forward.is_activation(result)) << node->label();
  }
}

/// Blocks with a residual stream, and a later pass through them in reverse that reads what each block makes.
spmd::Program there_and_back(int blocks) {
  std::string states, nodes, later;
  for (int i = 0; i < blocks; ++i) {
    const std::string n = std::to_string(i), next = std::to_string(i + 1);
    states += (i ? ", " : "") + ("float[16, 256] up" + n) + ", float[256, 16] down" + n;
    nodes += "  wide" + n + " = MatMul (h" + n + ", up" + n + ")\n  active" + n + " = Gelu (wide" + n + ")\n  back" +
             n + " = MatMul (active" + n + ", down" + n + ")\n  h" + next + " = Add (h" + n + ", back" + n + ")\n";
    later = "  dback" + n + " = MatMul (g" + next + ", up" + n + ")\n  dactive" + n + " = Mul (dback" + n + ", active" +
            n + ")\n  dwide" + n + " = Mul (dactive" + n + ", wide" + n + ")\n  dh" + n + " = MatMul (dwide" + n +
            ", down" + n + ")\n  g" + n + " = Add (g" + next + ", dh" + n + ")\n" + later;
  }
  const std::string last = std::to_string(blocks);
  const Compiled compiled("m (float[64, 16] x) => (float[] loss, float[64, 16] g0) <" + states +
                              "> {\n  h0 = Identity (x)\n" + nodes + "  loss = ReduceSum <keepdims = 0> (h" + last +
                              ")\n  g" + last + " = Tanh (h" + last + ")\n" + later + "}\n",
                          "");
  return compiled.program();
}

// Each segment is asked what it would free by itself; that walks this segment, and not the program.
TEST(Recompute, looks_at_as_many_values_as_there_are) {
  for (const char* what : {"selective", "full", "auto:1e6", "*active*"}) {
    SCOPED_TRACE(what);
    std::vector<double> visited;
    for (int blocks : {16, 64}) {
      spmd::Program program = there_and_back(blocks);
      std::vector<std::string> notes;
      const Topology none;
      Context context{none, notes};
      context.recompute = Recompute::parse(what);
      recompute(program, context);
      ASSERT_THAT(notes, testing::ElementsAre(testing::HasSubstr("operators run again, so ")));
      ASSERT_GT(context.visited, 0);
      visited.push_back(static_cast<double>(context.visited));
    }
    EXPECT_LT(visited[1], 4.5 * visited[0]);
  }
}

}  // namespace
}  // namespace tessera::passes

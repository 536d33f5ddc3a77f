#include "tessera/passes/shortened.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/compiled.h"

namespace tessera::passes {
namespace {

// A chain of products by states of their own, of which all but the first and the last are alike.
spmd::Program chain(int blocks) {
  std::string states, nodes;
  for (int b = 0; b < blocks; ++b) {
    states += fmt::format("{}float[16, 16] v{}, float[16, 16] w{}", b ? ", " : "", b, b);
    nodes += fmt::format("  a{0} = MatMul (h{0}, v{0})\n  r{0} = Relu (a{0})\n  b{0} = MatMul (r{0}, w{0})\n", b);
    for (int pad = 0; pad < 5; ++pad)
      nodes += fmt::format("  b{0}_{2} = Tanh (b{0}{1})\n", b, pad ? fmt::format("_{}", pad - 1) : "", pad);
    nodes += fmt::format("  h{} = Add (h{}, b{}_4)\n", b + 1, b, b);
  }
  const std::string text = fmt::format("m (float[12, 16] h0) => (float[12, 16] y) <{}> {{\n{}  y = Sigmoid (h{})\n}}",
                                       states, nodes, blocks);
  return spmd::Compiled(text, "t=2", {{"h0", "[t, -]"}}).program();
}

size_t count(const spmd::Program& program, std::string_view op_type) {
  return static_cast<size_t>(std::count_if(program.graph->nodes().begin(), program.graph->nodes().end(),
                                           [&](const auto& node) { return node->op_type == op_type; }));
}

TEST(Shortened, keeps_two_of_alike_blocks) {
  const spmd::Program whole = chain(8), few = shortened(whole);
  EXPECT_EQ(count(whole, "MatMul"), 16U);
  EXPECT_EQ(count(few, "MatMul"), 4U);
  EXPECT_EQ(count(few, "Sigmoid"), 1U);
  spmd::verify(few, "shortened");
  EXPECT_EQ(few.outputs.front().value->producer->op_type, "Sigmoid");
}

TEST(Shortened, chains_what_is_kept) {
  const spmd::Program few = shortened(chain(8));
  int depth = 0;
  for (const Value* value = few.outputs.front().value; value->producer;
       value = value->producer->inputs[0])  // along the residual stream
    depth += value->producer->op_type == "Add";
  EXPECT_EQ(depth, 2);
}

TEST(Shortened, leaves_what_does_not_repeat) {
  const spmd::Program whole = chain(2);
  EXPECT_EQ(shortened(whole).graph->nodes().size(), whole.graph->nodes().size());
}

}  // namespace
}  // namespace tessera::passes

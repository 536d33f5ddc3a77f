// Which nodes a graph keeps, and which ones make a value.
#include "tessera/ir/kept_nodes.h"

#include <gtest/gtest.h>

#include "tessera/ir/flow.h"
#include "tessera/ir/text.h"
#include "tessera/ir/transplant.h"

namespace tessera {
namespace {

TEST(KeptNodes, stay_as_long_as_they_are_kept) {
  const OnnxModel model = parse_text("g (float[2] x) => (float[2] y) { a = Neg (x) b = Exp (x) y = Abs (x) }");
  Graph& graph = *model.graph;
  {
    const KeptNodes kept(graph, [](const Node& node) { return node.is("Neg"); });
    graph.erase_dead();
    EXPECT_EQ(graph.outputs.size(), 2U);
  }
  EXPECT_EQ(graph.nodes().size(), 2U);
  EXPECT_NE(graph.find("a"), nullptr);
  EXPECT_EQ(graph.find("b"), nullptr);
  ASSERT_EQ(graph.outputs.size(), 1U);
  EXPECT_EQ(graph.outputs[0]->name, "y");
  graph.erase_dead();
  EXPECT_EQ(graph.find("a"), nullptr);
}

// What an iteration keeps needs the iteration's end, also if nothing reads what the loops make.
TEST(KeptNodes, keep_the_loops_that_they_are_in) {
  const OnnxModel model = parse_text(R"(<ir_version: 10, opset_import: ["" : 24]>
g (int64 n, float[4] x) => (float[4] y) {
  i = tessera.flow.Loop (n, "")
  h = tessera.flow.Carry (x, i)
  j = tessera.flow.Loop (n, "", i)
  g = tessera.flow.Carry (h, j)
  a = Neg (g)
  b = Exp (g)
  held, done = tessera.flow.Next (b, j, g)
  end = tessera.flow.Again (j, "", done)
  l = tessera.flow.Last (g, end)
  held2, done2 = tessera.flow.Next (l, i, h)
  end2 = tessera.flow.Again (i, "", done2)
  z = tessera.flow.Last (h, end2)
  y = Abs (x)
})");
  Graph& graph = *model.graph;
  {
    const KeptNodes kept(graph, [](const Node& node) { return node.is("Neg"); });
    graph.erase_dead();
  }
  const flow::Flow flow = flow::flow_of(graph);
  ASSERT_EQ(flow.regions.size(), 2U);
  EXPECT_EQ(flow.of(graph.find("a")->producer), 1);
  EXPECT_EQ(graph.find("z"), nullptr);
  graph.erase_dead();
  EXPECT_EQ(graph.nodes().size(), 1U);
}

TEST(Makers, of_a_source_are_none) {
  const OnnxModel model = parse_text("g (float[2] x) => (float[2] y) { a = Neg (x) y = Abs (a) }");
  const Graph& graph = *model.graph;
  EXPECT_TRUE(makers_of(graph, {graph.find("x")}).empty());
  EXPECT_EQ(makers_of(graph, {graph.find("x"), graph.find("y")}).size(), 2U);
}

}  // namespace
}  // namespace tessera

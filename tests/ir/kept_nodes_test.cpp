// Which nodes a graph keeps, and which ones make a value.
#include "tessera/ir/kept_nodes.h"

#include <gtest/gtest.h>

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

TEST(Makers, of_a_source_are_none) {
  const OnnxModel model = parse_text("g (float[2] x) => (float[2] y) { a = Neg (x) y = Abs (a) }");
  const Graph& graph = *model.graph;
  EXPECT_TRUE(makers_of(graph, {graph.find("x")}).empty());
  EXPECT_EQ(makers_of(graph, {graph.find("x"), graph.find("y")}).size(), 2U);
}

}  // namespace
}  // namespace tessera

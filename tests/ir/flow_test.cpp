#include "tessera/ir/flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"

namespace tessera::flow {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> results(const Graph& graph) {
  std::vector<std::string> names;
  for (const auto& node : graph.nodes()) names.push_back(node->outputs[0]->name);
  return names;
}

// A body that another body holds, with nodes of all three levels mixed.
constexpr std::string_view kNested = R"(<ir_version: 10, opset_import: ["" : 24]>
g (int64 n, float[4] x) => (float[4] y, float[4] z) {
  i = tessera.flow.Loop (n, "")
  w = Neg (x)
  h = tessera.flow.Carry (x, i)
  j = tessera.flow.Loop (n, "", i)
  q = Abs (h)
  g = tessera.flow.Carry (h, j)
  p = Add (g, w)
  z = Abs (x)
  held, done = tessera.flow.Next (p, j, g)
  end = tessera.flow.Again (j, "", done)
  l = tessera.flow.Last (g, end)
  s = Add (l, q)
  held2, done2 = tessera.flow.Next (s, i, h)
  end2 = tessera.flow.Again (i, "", done2)
  y = tessera.flow.Last (h, end2)
})";

TEST(Flow, FindsTheRegionOfEachNode) {
  const OnnxModel model = parse_text(std::string(kNested));
  const Graph& graph = *model.graph;
  const Flow flow = flow_of(graph);
  const auto region = [&](std::string_view name) { return flow.of(graph.find(name)->producer); };
  ASSERT_EQ(flow.regions.size(), 2u);
  EXPECT_EQ(flow.regions[1].parent, 0);
  EXPECT_EQ(flow.regions[0].end, graph.find("end2")->producer);
  for (const char* outside : {"w", "z", "y"}) EXPECT_EQ(region(outside), -1) << outside;
  for (const char* outer : {"i", "h", "q", "l", "s", "end2"}) EXPECT_EQ(region(outer), 0) << outer;
  for (const char* inner : {"j", "g", "p", "end"}) EXPECT_EQ(region(inner), 1) << inner;
}

TEST(Flow, PutsTheNodesOfARegionTogether) {
  const OnnxModel model = parse_text(std::string(kNested));
  arrange_regions(*model.graph);
  EXPECT_THAT(results(*model.graph),
              ElementsAre("w", "i", "h", "j", "g", "p", "held", "end", "q", "l", "s", "held2", "end2", "z", "y"));
  model.graph->verify("test");
  const auto arranged = results(*model.graph);
  arrange_regions(*model.graph);
  EXPECT_EQ(results(*model.graph), arranged);
}

std::string error_of(std::string_view nodes) {
  const OnnxModel model = parse_text(
      "<ir_version: 10, opset_import: [\"\" : 24]> g (int64 n, bool c, float[4] x) => "
      "(float[4] y) {" +
      std::string(nodes) + "}");
  try {
    flow_of(*model.graph);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    return error.what();
  }
  return "no error";
}

TEST(Flow, RefusesWhatIsNoConstruct) {
  EXPECT_THAT(error_of("i = tessera.flow.Loop (n, \"\") y = tessera.flow.Carry (x, i)"), HasSubstr("has no end"));
  EXPECT_THAT(error_of("e = tessera.flow.Again (x, \"\") y = Neg (x)"),
              HasSubstr("its operand 0 must be the result of a Loop"));
  EXPECT_THAT(error_of("y = tessera.flow.Choose (x, x, c)"), HasSubstr("its operand 2 must be the result of a Join"));
  EXPECT_THAT(error_of("i = tessera.flow.Loop (n, \"\", n) y = Neg (x)"), HasSubstr("can enclose it"));
  EXPECT_THAT(error_of("b = tessera.flow.Branch <taken = 1> (c) e = tessera.flow.Branch <taken = 0> (c) "
                       "p = tessera.flow.Bring (x, b) q = tessera.flow.Bring (x, e) y = Add (p, q)"),
              HasSubstr("two branches or bodies that do not enclose each other"));
}

}  // namespace
}  // namespace tessera::flow

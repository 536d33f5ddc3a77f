#include "tessera/rewrite/canonical/uniform.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tessera/ir/text.h"
#include "tessera/ops/op.h"

namespace tessera::rewrite {
namespace {

/// The element of `y`, which the nodes make of a mask of ones [batch, past + sequence].
std::string element_of(const std::string& nodes) {
  OnnxModel model = parse_text(R"(<ir_version: 10, opset_import: ["" : 24]>
    g (float[batch, sequence] x, float[batch, "past + sequence"] z) => (y)
      <int64 one = {1}, int64[1] first = {1}, int64[2] both = {1, 2}, int64[1] none = {0}> {
      extents = Shape (z)
      mask = Expand (one, extents)
      )" + nodes + "}");
  ops::infer_types(*model.graph);
  const auto element = uniform_element(model.graph->find("y"));
  return element ? element->str() : "unknown";
}

TEST(UniformElement, follows_moves_sums_and_differences) {
  EXPECT_EQ(element_of("y = Unsqueeze (mask, first)"), "1");
  EXPECT_EQ(element_of("y = ReduceSum (mask, first)"), "past + sequence");
  EXPECT_EQ(element_of("y = ReduceSum (mask)"), "batch*past + batch*sequence");
  EXPECT_EQ(element_of("s = ReduceSum (mask, first) m = Sub (s, first) y = Cast <to = 6> (m)"), "past + sequence - 1");
  EXPECT_EQ(element_of("s = ReduceSum (mask) b = Cast <to = 9> (s) y = Cast <to = 7> (b)"), "unknown");
  EXPECT_EQ(element_of("s = ReduceSum (mask) y = Cast <to = 3> (s)"), "unknown");
  EXPECT_EQ(element_of("y = Mul (mask, both)"), "unknown");
  EXPECT_EQ(element_of("c = CumSum (mask, one) y = Identity (c)"), "unknown");
  EXPECT_EQ(element_of("y = Expand (both, both)"), "unknown");
  EXPECT_EQ(element_of("b = Cast <to = 2> (mask) y = Add (b, b)"), "unknown") << "bytes may wrap around";
}

TEST(UniformElement, asks_each_value_once) {
  std::string nodes = "x0 = Sub (mask, mask)\n";
  for (int i = 1; i < 60; ++i) nodes += fmt::format("x{0} = Add (x{1}, x{1})\n", i, i - 1);
  EXPECT_EQ(element_of(nodes + "y = Identity (x59)"), "0");
}

}  // namespace
}  // namespace tessera::rewrite

#include "tessera/spmd/layout/storage.h"

#include <gtest/gtest.h>

#include "spmd/compiled.h"
#include "tessera/ir/text.h"

namespace tessera::spmd {
namespace {

// Two micro-batches of a step: in each, a table has the gradients of two uses.
TEST(ScatteredSums, AreThoseOverSeveralMicroBatches) {
  const OnnxModel model = parse_text(R"(<ir_version: 10, opset_import: ["" : 21]>
m (float[4, 2] a0, float[4, 2] b0, float[4, 2] a1, float[4, 2] b1) => (float[4, 2] y) <float[4, 2] table> {
  g0 = Add (a0, b0)
  g1 = Add (a1, b1)
  g = Add (g0, g1)
  next = Sub (table, g)
  y = Neg (table)
})");
  Graph& graph = *model.graph;
  ops::infer_types(graph);
  Value* table = graph.find("table");
  table->kind = ValueKind::state;
  table->changing = true;
  graph.set_next(table, graph.find("next"));
  const auto maker = [&](const char* value) { return graph.find(value)->producer; };
  maker("g0")->seat.micro_batch = 0;
  maker("g1")->seat.micro_batch = 1;
  const Sharding split = parse_sharding("[fsdp, -]", table->shape(), Mesh::parse("fsdp=2"), "table");
  EXPECT_EQ(scattered_sums({{table, split}}), (std::set<const Node*>{maker("g"), maker("next")}));
  maker("g0")->seat.micro_batch = -1;
  EXPECT_TRUE(scattered_sums({{table, split}}).contains(maker("g0"))) << "no part of a micro-batch";
  EXPECT_TRUE(scattered_sums({{table, Sharding::replicated(table->shape())}}).empty()) << "stored whole";
}

}  // namespace
}  // namespace tessera::spmd

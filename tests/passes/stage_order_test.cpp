// The order of nodes that belong to cells of a pipeline's table.
#include "tessera/passes/stage_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/compiled.h"
#include "tessera/schedule/cell_order.h"

namespace tessera::passes {
namespace {

using testing::ElementsAre;

// Two stages of one product each, forward and backward, for two micro-batches: f, its gradient g, and the weight's w.
constexpr std::string_view kTwoStages = R"(
two (float[4, 4] x0, float[4, 4] x1) => (float[4, 4] loss0, float[4, 4] loss1, float[4, 4] next_a, float[4, 4] next_b)
    <float[4, 4] a, float[4, 4] b> {
  f00 = MatMul (x0, a)
  f10 = MatMul (f00, b)
  loss0 = Relu (f10)
  i10 = MatMul (loss0, b)
  w10 = MatMul (f00, loss0)
  w00 = MatMul (x0, i10)
  f01 = MatMul (x1, a)
  f11 = MatMul (f01, b)
  loss1 = Relu (f11)
  i11 = MatMul (loss1, b)
  w11 = MatMul (f01, loss1)
  w01 = MatMul (x1, i11)
  next_a = Add (w00, w01)
  next_b = Add (w10, w11)
})";

Seat seat_of(const std::string& name) {
  const auto digit = [&](size_t at) { return name[at] - '0'; };
  if (name.starts_with("loss")) return {1, digit(4), Segment::forward};
  if (name.size() != 3) return {};
  return {digit(1), digit(2), name[0] == 'f' ? Segment::forward : Segment::backward};
}

struct Ordered {
  std::vector<std::string> results;
  std::vector<std::string> cells;
};

Ordered ordered_by(std::string_view schedule) {
  OnnxModel model = parse_text("<ir_version: 10, opset_import: [\"\" : 24]>\n" + std::string(kTwoStages));
  ops::infer_types(*model.graph);
  spmd::Program program;
  program.mesh = Mesh::parse("pp=2");
  program.graph = std::move(model.graph);
  for (const auto& node : program.graph->nodes()) node->seat = seat_of(node->output()->name);
  const schedule::CellOrder cells(make_pipeline(schedule, {2, 2}));
  const Topology topology;
  std::vector<std::string> notes;
  Context context{topology, notes};
  context.cells = &cells;
  stage_order(program, context);
  Ordered made;
  for (const auto& node : program.graph->nodes()) {
    made.results.push_back(node->output()->name);
    made.cells.push_back(node->seat.cell());
  }
  return made;
}

TEST(StageOrder, follows_the_table) {
  EXPECT_THAT(ordered_by("gpipe").results, ElementsAre("f00", "f01", "f10", "loss0", "f11", "loss1", "i10", "w10",
                                                       "w00", "i11", "w11", "next_b", "w01", "next_a"));
  const std::vector<std::string> interleaved = ordered_by("1f1b").results;
  const auto at = [&](const char* name) { return std::find(interleaved.begin(), interleaved.end(), name); };
  EXPECT_LT(at("i10"), at("f11")) << "the last stage computes gradients as soon as it can";
}

TEST(StageOrder, divides_the_backward_pass_where_the_table_does) {
  const Ordered whole = ordered_by("1f1b"), divided = ordered_by("zb-h1");
  const auto cell_of = [](const Ordered& ordered, const char* name) {
    const auto found = std::find(ordered.results.begin(), ordered.results.end(), name);
    return ordered.cells[static_cast<size_t>(found - ordered.results.begin())];
  };
  EXPECT_EQ(cell_of(whole, "i10"), "1B0");
  EXPECT_EQ(cell_of(whole, "w10"), "1B0");
  EXPECT_EQ(cell_of(divided, "i10"), "1I0");
  EXPECT_EQ(cell_of(divided, "w10"), "1W0");
  EXPECT_EQ(cell_of(divided, "f01"), "0F1");
  EXPECT_EQ(cell_of(divided, "next_a"), "");
}

}  // namespace
}  // namespace tessera::passes

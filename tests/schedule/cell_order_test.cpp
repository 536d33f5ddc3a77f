// The cells of all ranks in one order.
#include "tessera/schedule/cell_order.h"

#include <gtest/gtest.h>

namespace tessera::schedule {
namespace {

// Each cell comes after what it waits for, and each rank's cells stay in their order.
TEST(CellOrder, keeps_needs_and_the_order_of_ranks) {
  for (const PipelineScheduleInfo& each : pipeline_schedules()) {
    const PipelineTable table = make_pipeline(each.name == "interleaved:V" ? "interleaved:2" : each.name, {4, 8});
    SCOPED_TRACE(each.name);
    const CellOrder cells(table);
    EXPECT_TRUE(cells.trains());
    for (int64_t stage = 0; stage < table.stages; ++stage)
      for (int64_t m = 0; m < table.micro_batches; ++m) {
        const int64_t forward = cells.of(Work::forward, stage, m), input = cells.of(Work::input_gradient, stage, m);
        EXPECT_LT(forward, input);
        EXPECT_LE(input, cells.of(Work::weight_gradient, stage, m));
        EXPECT_EQ(cells.divides(stage, m), input != cells.of(Work::weight_gradient, stage, m));
        if (stage + 1 == table.stages) continue;
        EXPECT_LT(forward, cells.of(Work::forward, stage + 1, m));
        EXPECT_GT(input, cells.of(Work::input_gradient, stage + 1, m));
      }
    for (const auto& rank : table.ranks) {
      int64_t last = -1;
      for (const PipelineCell& cell : rank) {
        if (cell.idle()) continue;
        const int64_t number = cells.of(cell.first.work, cell.first.stage, cell.first.micro_batch);
        EXPECT_GT(number, last) << cell.str();
        last = number;
      }
    }
  }
}

TEST(CellOrder, of_a_forward_table_fills_all_stages) {
  const PipelineTable table = forward_table({0, 1, 2, 2, 1, 0}, 3, 4);
  EXPECT_FALSE(check_pipeline(table).trains);
  const CellOrder cells(table);
  EXPECT_FALSE(cells.trains());
  for (int64_t stage = 0; stage + 1 < table.stages; ++stage)
    for (int64_t m = 0; m < table.micro_batches; ++m)
      EXPECT_LT(cells.of(Work::forward, stage, m), cells.of(Work::forward, stage + 1, m));
}

}  // namespace
}  // namespace tessera::schedule

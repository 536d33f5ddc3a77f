#include "tessera/schedule/cell_order.h"

#include <algorithm>
#include <tuple>

namespace tessera::schedule {

CellOrder::CellOrder(const PipelineTable& table)
    : stages_(table.stages), micro_batches_(table.micro_batches), trains_(check_pipeline(table).trains) {
  of_.assign(static_cast<size_t>(Work::reduce_gradients) + 1,
             std::vector<int64_t>(static_cast<size_t>(stages_ * micro_batches_), -1));
  const PipelineTimes times = time_pipeline(table, even_pipeline_costs(table, 1, 1, 1, 0));
  std::vector<std::tuple<double, size_t, size_t>> cells;  // start, rank, slot
  for (size_t rank = 0; rank < table.ranks.size(); ++rank)
    for (size_t slot = 0; slot < table.ranks[rank].size(); ++slot)
      if (!table.ranks[rank][slot].idle()) cells.emplace_back(times.start[rank][slot], rank, slot);
  std::sort(cells.begin(), cells.end());
  for (size_t c = 0; c < cells.size(); ++c) {
    const auto& [start, rank, slot] = cells[c];
    for_each_action(table.ranks[rank][slot], [&](const Action& action) { number(action, static_cast<int64_t>(c)); });
  }
}

void CellOrder::number(const Action& action, int64_t cell) {
  if (!computes(action.work)) return;
  const auto at = static_cast<size_t>(action.stage * micro_batches_ + action.micro_batch);
  if (action.work == Work::backward)
    for (const Work half : {Work::input_gradient, Work::weight_gradient}) of_[static_cast<size_t>(half)][at] = cell;
  of_[static_cast<size_t>(action.work)][at] = cell;
}

}  // namespace tessera::schedule

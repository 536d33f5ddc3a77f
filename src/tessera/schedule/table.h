#pragma once

#include <array>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/pipeline.h"

/// Tables of pipelines: names of actions, and how stages lie on ranks.
namespace tessera::schedule {

using Work = PipelineWork;
using Action = PipelineAction;
using Cell = PipelineCell;

struct WorkName {
  Work work;
  std::string_view name;
  bool computes, has_micro_batch;
};
/// Every kind of work but `none`, longer names first where one begins another.
inline constexpr std::array kWorkNames = {
    WorkName{Work::send_forward, "SEND_F", false, true},
    WorkName{Work::receive_forward, "RECV_F", false, true},
    WorkName{Work::send_backward, "SEND_B", false, true},
    WorkName{Work::receive_backward, "RECV_B", false, true},
    WorkName{Work::unshard, "UNSHARD", false, false},
    WorkName{Work::reshard, "RESHARD", false, false},
    WorkName{Work::reduce_gradients, "REDUCE_GRAD", false, false},
    WorkName{Work::forward, "F", true, true},
    WorkName{Work::backward, "B", true, true},
    WorkName{Work::input_gradient, "I", true, true},
    WorkName{Work::weight_gradient, "W", true, true},
};
const WorkName& name_of(Work work);
inline bool computes(Work work) {
  return work != Work::none && name_of(work).computes;
}
std::string text_of(const Action& action);

inline Cell cell(Work work, int64_t stage, int64_t micro_batch) {
  return {{work, stage, micro_batch}, {}};
}

/// Where stages lie. The ranks that consecutive stages are on are neighbours or equal.
/// loop 0 1 2 3, or 0 1 2 3 0 1 2 3 (interleaved); V 0 1 2 3 3 2 1 0.
enum class Placement { loop, v };
std::vector<int64_t> placed(Placement placement, int64_t ranks, int64_t stages);

/// A table of these stages without cells.
PipelineTable empty_table(Placement placement, int64_t ranks, int64_t stages, int64_t micro_batches);

/// Only forward passes of stages on these ranks, each micro-batch as soon as it can.
PipelineTable forward_table(std::vector<int64_t> rank_of, int64_t ranks, int64_t micro_batches);

/// Calls visit(action) for the one or two actions of a cell.
template <typename Visit>
void for_each_action(const Cell& cell, Visit&& visit) {
  if (!cell.idle()) visit(cell.first);
  if (cell.overlapped()) visit(cell.second);
}

}  // namespace tessera::schedule

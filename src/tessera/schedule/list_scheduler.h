#pragma once

#include <optional>

#include "tessera/schedule/table.h"

/// Schedules made by simulation: whenever a rank is free, it computes the most urgent cell whose operands are there and
/// whose activations fit, and weight gradients when it has nothing else.
namespace tessera::schedule {

struct ListRules {
  double forward = 1, input_gradient = 1, weight_gradient = 1, send = 0;  ///< of a cell; all stages are alike
  /// By stage, how many micro-batches may be between their forward pass and their weight gradient.
  std::vector<int64_t> most_of_stage;
  /// What all stages of a rank may hold, of which a micro-batch takes 1 on a stage, and `kept` after its input
  /// gradient.
  double most_held = 0;  ///< 0: any number
  double kept = 1;
  /// Input gradients in the order of micro-batches; otherwise those of later stages first.
  bool oldest_first = false;
  double patience = 0;  ///< how long a rank waits for an input gradient's operands before it computes anything else
};

/// Fills the table, which has no cells. Nothing if the limits let no cell start that would have to.
std::optional<PipelineTable> list_schedule(PipelineTable table, const ListRules& rules);

}  // namespace tessera::schedule

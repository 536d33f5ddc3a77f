#include "tessera/program_io/plain_step.h"

#include "tessera/program_io/compute_sizes.h"
#include "tessera/rewrite/passes.h"
#include "tessera/train/wide_sums.h"

namespace tessera::program_io {

OnnxModel plain_step(const OnnxModel& stepping) {
  OnnxModel plain = stepping.clone();
  Graph& graph = *plain.graph;
  for (Value* state : graph.values_of(ValueKind::state)) {
    if (!state->next) continue;
    graph.outputs.push_back(state->next);
    graph.set_next(state, nullptr);
  }
  rewrite::spell_out(graph);
  train::cast_operands_of_wide_sums(graph);
  compute_sizes(graph);
  return plain;
}

}  // namespace tessera::program_io

#include <utility>

#include "tessera/bind/frame.h"
#include "tessera/bind/traits.h"

namespace tessera::bind {

Binding::Binding(std::shared_ptr<Rank> rank, const spmd::Program& program, const Symbols& symbols,
                 const Options& options)
    : rank_(std::move(rank)),
      program_(program),
      symbols_(symbols),
      options_(options),
      frame_(std::make_shared<Frame>()) {
  Frame& frame = *frame_;
  frame.symbols = symbols;
  for (const Value* output : program.graph->outputs) bound(output->shape());  // refuses sizes that no input gives
  assign_groups();
  find_regions();
  place_outputs();
  place_states();
  prepare_communications();
  const Tasks all = tasks();
  machine_.needs = std::make_shared<const std::vector<std::vector<int>>>(needs_of(all.tasks));
  frame.actions = order(all);
  frame.spans = spans_of(frame.actions, machine_.steps.size());
  machine_.actions = std::make_shared<const std::vector<Enqueued>>(on_queues(frame.actions));
  note_uses();
  place_carried();
  place_sources();
  pack_weights();
  prepare_steps();
  place_results();
  control();
  note_occupants();
  add_costs();
  copy_outputs();
  keep_for_other_sizes();
  place_buffers();
}

}  // namespace tessera::bind

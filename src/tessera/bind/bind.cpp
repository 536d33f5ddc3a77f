#include <algorithm>
#include <tuple>
#include <utility>

#include "tessera/base/keep.h"
#include "tessera/bind/binding.h"
#include "tessera/bind/buckets.h"
#include "tessera/bind/cost.h"
#include "tessera/bind/decisions.h"
#include "tessera/bind/loops.h"
#include "tessera/bind/sources.h"
#include "tessera/bind/traits.h"

namespace tessera::bind {
namespace {

std::shared_ptr<const Grouping> groups_of(const Subject& subject, const Sizes& sizes) {
  const Bound bound{[&](const Value* value) { return sizes.type(value); },
                    [&](const Value* value) { return sizes.elements(value); }};
  const kernels::Library& library = subject.device().kernels();
  Grouping grouping = subject.options.keep_all ? single_nodes(subject.graph(), bound, library)
                                               : group_nodes(subject.graph(), bound, library);
  join_buckets(subject.graph(), grouping);
  return std::make_shared<const Grouping>(std::move(grouping));
}

// For each group; null if it does not communicate.
std::vector<PreparedCommunication> communications_of(Rank& rank, const std::vector<NodeGroup>& groups,
                                                     const Sizes& sizes) {
  std::vector<PreparedCommunication> all(groups.size());
  for (size_t g = 0; g < groups.size(); ++g)
    if (is_communication(*groups[g].root)) all[g] = prepare_communication(rank, groups[g], sizes);
  return all;
}

std::vector<size_t> scratch_of(const std::vector<PreparedCommunication>& communications) {
  std::vector<size_t> bytes;
  for (const PreparedCommunication& made : communications)
    bytes.push_back(made.communication ? made.communication->scratch_bytes() : 0);
  return bytes;
}

// Places operands, results and scratch memory of all steps, and the values that are read after the run.
void place_steps(const Subject& subject, const ResultSources& of, const std::vector<LoopPlan>& loops,
                 const std::vector<std::shared_ptr<Step>>& steps, Arena& arena) {
  for (const auto& [step, phase] : of.order.actions)
    if (phase != Phase::wait) place_step(of, step, *steps[step], arena);
  for (const Value* output : subject.graph().outputs) of.steps.places.locate(of.steps.values, output);
  // The two buffers of a carried value have equal lifetimes, even if a result after the loop takes one of them over,
  // since that result may be in the other one by then.
  for (const LoopPlan& loop : loops)
    for (const auto& [now, next] : loop.exchanged) arena.live_together(now, next);
  if (subject.options.keep_all)
    for (const auto& [value, view] : of.steps.values.views()) of.steps.places.locate(of.steps.values, value);
}

// The floating-point operations of each step, as expressions.
std::vector<Expr> add_costs(const std::vector<NodeGroup>& groups, const Sizes& sizes,
                            const std::vector<std::shared_ptr<Step>>& steps) {
  std::vector<Expr> flops;
  for (size_t g = 0; g < groups.size(); ++g) {
    flops.push_back(flops_of(groups[g]));
    steps[g]->cost = cost_of(groups[g], *steps[g], sizes.number(flops[g]));
  }
  return flops;
}

// What bindings for other sizes read.
Dependents dependents_of(const Subject& subject, const std::vector<NodeGroup>& groups, const Values& values,
                         const std::map<const Value*, std::vector<int64_t>>& elements,
                         const std::vector<PreparedCommunication>& communications) {
  std::vector<const Value*> expressions;
  for (const auto& [value, numbers] : elements) expressions.push_back(value);
  std::vector<std::set<std::string, std::less<>>> asked;
  for (const PreparedCommunication& made : communications) asked.push_back(made.asked);
  return {subject, groups, values, std::move(expressions), std::move(asked)};
}

template <typename T>
std::shared_ptr<const T> shared(T value) {
  return std::make_shared<const T>(std::move(value));
}

}  // namespace

std::unique_ptr<Binding> bind(std::shared_ptr<Rank> rank, const spmd::Program& program, const Symbols& symbols,
                              const Options& options) {
  const Subject subject{rank, program, options};
  MachineProgram machine;

  // Groups, and the types that kernels see.
  Sizes sizes(program, rank->coordinates(), symbols);
  for (const Value* output : program.graph->outputs) sizes.numbers(output->shape());  // refuses unknown sizes
  const std::shared_ptr<const Grouping> grouping = groups_of(subject, sizes);
  const std::vector<NodeGroup>& groups = grouping->groups;
  Values values(std::move(sizes), grouping);
  Regions regions = regions_of(subject.graph(), groups);

  // The order, which depends on places outside the arena and on the memory of communications; and when each value is
  // read.
  Destinations direct = results_in_outputs(subject, values);
  PlacedStates states = place_states(subject, groups, values, direct);
  direct.insert(states.direct.begin(), states.direct.end());
  const auto communications = communications_of(*rank, groups, values.sizes());
  const Tasks tasks = tasks_of(subject, groups, values, scratch_of(communications), states.over, direct);
  Order order = in_order(tasks, groups, regions, options);
  Uses uses = uses_of(subject, groups, values, regions, order);

  // Places of values that exist before the first step, or through all iterations.
  Arena arena;
  Places places(rank);
  KnownElements known(rank);
  Carried carried = place_carried(subject, groups, values, regions, order, uses, direct, arena);
  for (const auto& [value, place] : carried.direct) direct[value] = place;
  Sources sources = place_sources(subject, values, uses, states.slot_of, arena, places, known);
  PackedWeights packed(*rank, groups, values);

  // Kernels, and the places of their results.
  const StepSources of{subject, groups, values, packed, known, places};
  machine.steps = prepare_steps(of, order.actions, communications);
  place_steps(subject, {of, order, uses, direct}, carried.loops, machine.steps, arena);
  std::vector<Expr> flops = add_costs(groups, values.sizes(), machine.steps);
  Controls controls = controls_of(groups, regions, order.actions, machine.steps, std::move(carried.loops));

  machine.needs = shared(order.needs);
  machine.queues = tasks.queues;
  machine.actions = shared(on_queues(order.actions, order.spans, tasks.queue_of()));
  machine.infos = shared(infos_of(order, machine.steps));
  std::tie(machine.controls, machine.loops, machine.branches) =
      std::tie(controls.controls, controls.loops, controls.branches);
  machine.inputs = std::move(sources.inputs);
  machine.outputs = copies_of_outputs(subject, values, places);
  machine.slots = states.slots;
  machine.exchanges = exchanges_of(states.next, values, places);
  machine.occupants = shared(arena.take_occupants());
  place_buffers(machine, arena.buffers());

  // What bindings for other sizes reuse.
  values.share();
  places.share();
  known.share();
  Dependents dependents = dependents_of(subject, groups, values, sources.elements, communications);
  auto decisions = shared(Decisions{
      .grouping = grouping,
      .regions = std::move(regions),
      .direct = std::move(direct),
      .states = std::move(states),
      .packed = std::move(packed),
      .order = std::move(order),
      .communicates = std::any_of(communications.begin(), communications.end(),
                                  [](const PreparedCommunication& made) { return made.communication != nullptr; }),
      .uses = std::move(uses),
      .flops = std::move(flops),
      .elements = std::move(sources.elements),
      .symbols = symbols,
      .dependents = std::move(dependents),
      .machine = machine,
  });
  return std::make_unique<Binding>(subject, std::move(decisions), std::move(values), std::move(places),
                                   std::move(known), std::move(machine));
}

Binding::Binding(Subject subject, std::shared_ptr<const Decisions> decisions, Values values, Places places,
                 KnownElements known, MachineProgram machine)
    : subject_(std::move(subject)),
      decisions_(std::move(decisions)),
      values_(std::move(values)),
      places_(std::move(places)),
      known_(std::move(known)),
      machine_(std::move(machine)) {}

std::vector<device::NamedBytes> Binding::pieces() const {
  return pieces_at_peak(machine_);
}

void Binding::abandon_memory() const {
  known_.abandon();
  keep_for_good(decisions_);
}

}  // namespace tessera::bind

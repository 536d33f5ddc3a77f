#include "tessera/runtime/init.h"

#include <algorithm>
#include <functional>

#include "tessera/base/error.h"
#include "tessera/ir/hash.h"
#include "tessera/runtime/rank_plan.h"
#include "tessera/spmd/partition/init.h"

namespace tessera::runtime {
namespace {

// Init as a program of its own: its results are outputs, each whole and at this rank only.
std::shared_ptr<const spmd::Program> program_of_init(const spmd::Program& program,
                                                     const std::vector<int64_t>& coordinates,
                                                     const std::set<std::string>& names) {
  auto own = std::make_shared<spmd::Program>();
  own->mesh = program.mesh;
  own->hints = program.hints;
  own->graph = program.init->clone();
  Graph& graph = *own->graph;
  std::erase_if(graph.outputs, [&](const Value* result) { return !names.contains(result->name); });
  graph.erase_dead(true);
  for (const Value* source : graph.values_of(ValueKind::state)) {
    const Value* state = program.graph->find(source->name);
    own->placements[source] = program.placement(state);
    if (auto data = program.initial.find(state); data != program.initial.end()) own->initial[source] = data->second;
  }
  for (Value* result : graph.outputs) {
    Sharding here = Sharding::replicated(result->shape());
    for (size_t a = 0; a < own->mesh.axes().size(); ++a)
      here.at.push_back({AxisRef::whole(own->mesh.axes()[a]), coordinates[a]});
    own->placements[result] = {result->name, result->type, std::move(here)};
    own->outputs.push_back({result->name, result});
  }
  return own;
}

Dims dims_on(const Value* result, const RankState& rank) {
  Dims dims;
  for (const Expr& extent : result->shape())
    dims.push_back(bind_rank(extent, rank.mesh(), rank.coordinates()).evaluate(Symbols{}));
  return dims;
}

void add(Hash& hash, const AttributeValue& value) {
  std::visit(
      [&](const auto& held) {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::string>)
          hash.add(held);
        else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, float>)
          hash.add(fmt::format("{}", held));
        else if constexpr (std::is_same_v<T, std::vector<int64_t>> || std::is_same_v<T, std::vector<float>> ||
                           std::is_same_v<T, std::vector<std::string>>)
          hash.add(fmt::format("{}", fmt::join(held, "\n")));
        else if constexpr (std::is_same_v<T, Tensor>)
          hash.add(held);
        else
          hash.add(reinterpret_cast<uint64_t>(&held));  // equal to itself only
      },
      value);
}

std::shared_ptr<const RankPrograms> programs_of_init(const RankPrograms& programs, int rank,
                                                     const std::set<std::string>& names) {
  auto init = std::make_shared<RankPrograms>();
  init->programs = {program_of_init(programs.of(rank), programs.mesh().coordinates(rank), names)};
  if (!programs.shards.empty()) {
    init->shards = {programs.shards[programs.shards_of[rank]]};
    init->shards_of.resize(static_cast<size_t>(programs.mesh().size()));
  }
  return init;
}

bool communicates(const bind::MachineProgram& machine) {
  return std::any_of(machine.infos->begin(), machine.infos->end(),
                     [](const bind::StepInfo& info) { return info.communication; });
}

}  // namespace

std::string machine_text_of_init(const RankPrograms& programs, int rank, int threads,
                                 std::shared_ptr<device::Device> device) {
  const std::vector<std::string> derived = spmd::derived_states(programs.of(rank));
  if (derived.empty()) return "";
  RankStates none;
  RankState state(programs.mesh(), rank, threads, none, std::move(device));
  return RankPlan(state, programs_of_init(programs, rank, {derived.begin(), derived.end()}), {}, {}).text();
}

InitResults run_init(const RankPrograms& programs, RankState& rank, const std::set<std::string>& names) {
  RankStates none;
  RankState state(rank, none);
  const auto init = programs_of_init(programs, rank.rank(), names);
  const spmd::Program& program = *init->programs.front();
  RankPlan plan(state, init, {}, {});
  InitResults results;
  results.peak = {plan.arena_bytes() + state.state_bytes(), plan.arena_bytes() + state.changing_bytes()};
  for (const auto& [form, bytes] : state.weights().own_bytes()) results.peak.own += bytes;
  std::vector<void*> made;
  for (const spmd::Port& port : program.outputs) {
    Tensor& result = results.values[port.name] = rank.memory().on_host(
        port.value->dtype(), dims_on(port.value, state), fmt::format("'{}', which is computed once", port.value->name));
    results.peak.bytes += result.bytes;
    results.peak.own += result.bytes;
    made.push_back(result.writable);  // null where nothing runs
  }
  const auto arena = rank.memory().hold_on_host(plan.arena_bytes(), "what is computed once, on the way");
  // An init that only computes will end by itself and release memory; one that communicates may wait for other ranks.
  const auto paused = communicates(plan.machine()) ? rank.weights().shared()->room().pause() : nullptr;
  rank.memory().use([&] {
    try {
      plan.run({}, made);
    } catch (...) {
      state.queues().settle();
      state.communicators().flight().step = nullptr;  // the step's name goes with the plan
      throw;
    }
  });
  return results;
}

std::map<const Value*, uint64_t> derivations(const spmd::Program& program, const std::vector<int64_t>& coordinates,
                                             const std::function<uint64_t(const Value*)>& number_of_state) {
  std::map<const Value*, uint64_t> numbers, derived;
  if (!program.init) return derived;
  for (const auto& value : program.init->values()) {
    if (value->producer) continue;
    Hash hash;
    if (value->kind == ValueKind::state)
      hash.add(number_of_state(program.graph->find(value->name)));
    else if (value->kind == ValueKind::constant)
      hash.add(value->data);
    else
      for (const Expr& element : *value->content) hash.add(bind_rank(element, program.mesh, coordinates).str());
    numbers[value.get()] = hash.value();
  }
  for (const auto& node : program.init->nodes()) {
    Hash hash;
    for (const std::string* name : {&node->domain, &node->op_type, &node->overload}) hash.add(*name);
    for (const Attribute& attribute : node->attributes) {
      hash.add(attribute.name);
      add(hash, attribute.value);
    }
    for (const Value* operand : node->inputs) hash.add(operand ? numbers.at(operand) : 0);
    for (size_t r = 0; r < node->outputs.size(); ++r) {
      const Value* result = node->outputs[r];
      if (!result) continue;
      hash.add(fmt::format("{}: {} {}", r, name_of(result->dtype()), to_string(result->shape())));
      numbers[result] = hash.value();
    }
  }
  for (const auto& [state, made] : program.derived) derived[state] = numbers.at(made);
  return derived;
}

}  // namespace tessera::runtime

#include <fmt/ranges.h>

#include <cstring>

#include "tessera/base/error.h"
#include "tessera/ir/flow.h"
#include "tessera/runtime/executor_impl.h"
#include "tessera/runtime/output_parts.h"
#include "tessera/runtime/whole_states.h"

/// Values that ranks hold between runs: states, which callers read and set, and values that a run has kept.
namespace tessera::runtime {
namespace {

// Copies the rank's part of a state to and from the whole.
void store_part(RankState& rank, const StateSlot& slot, const Box& box, void* whole) {
  if (slot.bytes == 0) return;
  rank.memory().read(slot.current.get(), slot.bytes, [&](const void* part) {
    if (box.count() == count_of(box.dims))
      std::memcpy(whole, part, slot.bytes);
    else
      copy_to_whole(whole, part, CopiedBox(box, slot.dtype));
  });
}
void load_part(RankState& rank, StateSlot& slot, const Box& box, const void* whole) {
  if (slot.bytes == 0) return;
  rank.memory().write(slot.current.get(), slot.bytes, [&](void* part) {
    if (box.count() == count_of(box.dims))
      std::memcpy(part, whole, slot.bytes);
    else
      copy_from_whole(part, whole, CopiedBox(box, slot.dtype));
  });
}

// Whether a value only orders nodes, so that nothing is stored in it.
bool is_token(const Value& value) {
  const Node& node = *value.producer;
  if (flow::is(node, "Next")) return &value != node.outputs[0];
  return flow::is(node, "Again") || flow::is(node, "Branch") || flow::is(node, "Join");
}

std::string names_of(const WholeStates& states) {
  std::vector<std::string> names;
  for (const auto& [name, state] : states) names.push_back("'" + name + "'");
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Executor::Tensors Executor::states(const std::vector<std::string>& names) {
  const WholeStates all = whole_states(*impl_->programs);
  for (const std::string& name : names)
    if (!all.contains(name))
      fail("state", "the program has no state '{}' that changes; it has: {}", name, names_of(all));
  const std::set<std::string> wanted(names.begin(), names.end());
  return states_if([&](const std::string& name) { return wanted.contains(name); });
}

Executor::Tensors Executor::states_if(const std::function<bool(const std::string&)>& is_wanted) {
  std::scoped_lock lock(impl_->running, impl_->store->running);
  impl_->commit();
  impl_->store->require_whole();
  const RankPrograms& programs = *impl_->programs;
  impl_->team.join(programs);
  WholeStates wholes = whole_states(programs);
  require_whole(wholes);
  std::erase_if(wholes, [&](const auto& entry) { return !is_wanted(entry.first); });
  std::set<std::string> held;  // the programs' states that are parts of the requested ones
  for (const auto& [name, whole] : wholes)
    for (const WholeState::Piece& piece : whole.pieces) held.insert(piece.state);
  std::map<std::string, RankPrograms::Output> all = programs.changing_states();
  std::erase_if(all, [&](const auto& entry) { return !held.contains(entry.first); });
  Tensors states, divided;  // by the programs' names; and by the model's names, of states that are in pieces
  try {
    const auto allocate = [&](const std::string& name, DType dtype, const Dims& dims) {
      auto held = impl_->memory.hold(bytes_of(dtype, count_of(dims)), fmt::format("the whole of '{}'", name));
      return device::MemoryLimit::released_with(Tensor::zeros(dtype, dims), std::move(held));
    };
    for (const auto& [name, state] : all)
      states[name] = allocate(name, state.value->dtype(), bound_dims(*state.placement->global.shape, {}));
    if (impl_->team.has_first())
      for (const auto& [name, state] : wholes)
        if (state.is_divided(name)) divided[name] = allocate(name, state.dtype, state.dims);
  } catch (...) {  // processes that wait for this one must hear of it
    if (!impl_->team.is_all())
      impl_->on_all([failed = std::current_exception()](size_t) { std::rethrow_exception(failed); });
    throw;
  }
  impl_->on_all(
      [&](size_t n) {
        RankState& rank = impl_->team[n];
        const spmd::Program& program = programs.of(rank.rank());
        const auto own = programs.changing_states(rank.rank());
        for (auto& [name, whole] : states) {
          const auto state = own.find(name);
          if (state != own.end() && spmd::writes_part(program, state->second.value, rank.coordinates()))
            store_part(rank, rank.slot(programs, state->second.value),
                       spmd::held_part(program, state->second.value, rank.coordinates(), {}), whole.mutable_data());
          bring_parts(rank, programs, {}, impl_->team.here(), all.at(name).value->name, whole.mutable_data());
        }
      },
      {&states});
  if (!impl_->team.has_first()) return {};
  for (auto& [name, whole] : divided) {
    join_pieces(wholes.at(name), states, whole);
    for (const WholeState::Piece& piece : wholes.at(name).pieces) states.erase(piece.state);
  }
  states.merge(divided);
  return states;
}

void Executor::set_states(const Tensors& wholes) {
  std::scoped_lock lock(impl_->running, impl_->store->running);
  impl_->commit();
  const RankPrograms& programs = *impl_->programs;
  const WholeStates all = whole_states(programs);
  Tensors given;  // by the names of the programs' states
  impl_->alike(wholes, [&]() -> Symbols {
    require_whole(all);
    for (const auto& [name, tensor] : wholes) {
      auto state = all.find(name);
      if (state == all.end())
        fail("state", "the program has no state '{}' that changes; it has: {}", name, names_of(all));
      const auto& [dtype, dims, pieces] = state->second;
      if (tensor.dtype != dtype || tensor.dims != dims)
        fail("state", "the state '{}' is {} [{}], but the array is {} [{}]; give one of the state's type", name,
             name_of(dtype), fmt::join(dims, ", "), name_of(tensor.dtype), fmt::join(tensor.dims, ", "));
      tensor.require_whole(name);
    }
    return {};
  });
  for (const auto& [name, tensor] : wholes) {
    if (all.at(name).is_divided(name))
      cut_pieces(all.at(name), tensor, given);
    else
      given.emplace(name, tensor);
  }
  std::set<std::string> names;
  for (const auto& [name, tensor] : given) names.insert(name);
  const auto on_each = [&](const std::function<void(RankState&, const Value*, const Tensor&)>& visit) {
    impl_->on_all(
        [&](size_t n) {
          RankState& rank = impl_->team[n];
          for (const auto& [name, state] : programs.changing_states(rank.rank()))
            if (const auto whole = given.find(name); whole != given.end()) visit(rank, state.value, whole->second);
        },
        {&given});
  };
  on_each([&](RankState& rank, const Value* state, const Tensor&) { rank.slot(programs, state); });  // may fail
  impl_->store->note_torn(names);
  on_each([&](RankState& rank, const Value* state, const Tensor& whole) {
    const spmd::Program& program = programs.of(rank.rank());
    load_part(rank, rank.slot(programs, state), spmd::held_part(program, state, rank.coordinates(), {}), whole.data);
  });
  impl_->store->note_written(names);
}

const std::shared_ptr<StateStore>& Executor::store() const {
  return impl_->store;
}
const std::shared_ptr<ProcessShare>& Executor::share() const {
  return impl_->share;
}

std::vector<Executor::Kept> Executor::kept() {
  std::scoped_lock lock(impl_->running, impl_->store->running);
  check(impl_->options.keep_all && impl_->last, "values are kept only by a run with keep_all");
  const RankPrograms& programs = *impl_->last->front()->programs();
  std::vector<Kept> values;
  std::vector<std::string> names;                // in the programs
  std::map<std::string, const Shape*> shape_of;  // a layout change may go through other shapes of a tensor
  std::set<std::string> seen;
  auto keep = [&](const Value* result, const spmd::Placement& placement) {
    const Shape& shape = *placement.global.shape;
    if (*shape_of.try_emplace(placement.name, &shape).first->second != shape) return;
    Kept kept{placement.name, Tensor::zeros(result->dtype(), bound_dims(shape, impl_->last_symbols))};
    for (size_t n = 0; n < impl_->last->size(); ++n)
      if (const Value* own = programs.of(impl_->team.here()[n]).graph->find(result->name))
        (*impl_->last)[n]->store(own, kept.value.mutable_data());
    names.push_back(result->name);
    values.push_back(std::move(kept));
  };
  for (const auto& program : programs.programs)
    for (const auto& node : program->graph->nodes())
      for (const Value* result : node->outputs) {
        auto placement = result ? program->placements.find(result) : program->placements.end();
        if (placement == program->placements.end() || placement->second.sharding.is_partial()) continue;
        if (is_token(*result)) continue;
        if (seen.insert(result->name).second) keep(result, placement->second);
      }
  impl_->on_all([&](size_t n) {
    for (size_t i = 0; i < values.size(); ++i)
      bring_parts(impl_->team[n], programs, impl_->last_symbols, impl_->team.here(), names[i],
                  values[i].value.mutable_data());
  });
  return values;
}

}  // namespace tessera::runtime

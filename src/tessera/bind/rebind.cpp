#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/bind/binding.h"
#include "tessera/bind/cost.h"
#include "tessera/bind/decisions.h"
#include "tessera/bind/sources.h"

/// A binding for other sizes, derived from the decisions of an existing binding.
///
/// Example: a decoder reads a cache of 128 positions, then one of 129. 24 of its 300 steps join the cache with new
/// positions, 12 attend to it, and one makes the mask. Only their values have other extents; every other step is the
/// same object in both bindings, and all steps use the same buffers, some of which are longer.
///
/// Invariant: a binding's decisions, made one after the other, depend only on extents and on earlier decisions. So if
/// every decision that reads a changed extent stays the same, all decisions do. Those decisions are made again here, by
/// the functions that made them first; if one changes, the binding is made from scratch. Numbers (extents, bytes,
/// offsets of views) are recomputed without a comparison. Places in the arena come last, from the bytes of all buffers.
namespace tessera::bind {
namespace {

using Where = Location::Where;

// The symbols whose values changed; nullopt if the symbols themselves differ.
std::optional<std::vector<std::string>> changed_symbols(const Symbols& a, const Symbols& b) {
  std::vector<std::string> changed;
  if (a.size() != b.size()) return std::nullopt;
  for (auto one = a.begin(), other = b.begin(); one != a.end(); ++one, ++other) {
    if (one->first != other->first) return std::nullopt;
    if (one->second != other->second) changed.push_back(one->first);
  }
  return changed;
}

/// Values whose extents or elements differ from the first binding's.
struct Changed {
  std::unordered_map<const Value*, Dims> extents;
  std::map<const Value*, std::vector<int64_t>> elements;  ///< of expressions
  std::vector<const Value*> values;                       ///< all of both
};

Changed changed_values(const Decisions& decisions, const Change& change, const Sizes& sizes,
                       const std::unordered_map<const Value*, Dims>& before) {
  Changed changed;
  for (const Value* value : change.extents) {
    Dims dims = sizes.dims(value);
    if (dims == before.at(value)) continue;
    require_countable(value->dtype(), dims, value->name);
    changed.extents.emplace(value, std::move(dims));
    changed.values.push_back(value);
  }
  for (const Value* value : change.elements) {
    std::vector<int64_t> elements = sizes.numbers(*value->content);
    if (elements == decisions.elements.at(value)) continue;
    if (!changed.extents.contains(value)) changed.values.push_back(value);
    changed.elements.emplace(value, std::move(elements));
  }
  return changed;
}

/// Makes the parts of a binding that change, and the steps that use them.
class Rebinding {
 public:
  Rebinding(const Subject& subject, const Decisions& decisions, const Change& change, Values values, Places places,
            KnownElements known)
      : values(std::move(values)),
        places(std::move(places)),
        known(std::move(known)),
        machine(decisions.machine),
        subject_(subject),
        decisions_(decisions),
        change_(change),
        arena_(decisions.machine.buffers) {}

  // Returns false if a decision changes.
  bool make(const Changed& changed, const std::map<const Value*, Alias>& views) {
    for (const auto& [value, elements] : changed.elements) places.put(value, known.place_expression(value, elements));
    for (const auto& [value, view] : views) touch(value);
    for (const Value* value : changed.values) touch(value);
    if (!place_outputs() || !place_inputs()) return false;
    move_views(views);
    if (!order(changed.values) || !prepare_steps()) return false;
    machine.exchanges = exchanges_of(decisions_.states.next, values, places);
    machine.outputs = copies_of_outputs(subject_, values, places);
    place_buffers(machine, arena_.buffers());
    return true;
  }

  Values values;
  Places places;
  KnownElements known;
  MachineProgram machine;

 private:
  // Marks all steps that use the value, to be prepared again.
  void touch(const Value* value) {
    const std::vector<int>& steps = decisions_.dependents.steps_of(value);
    touched_.insert(steps.begin(), steps.end());
  }

  void move(const Value* value, const Location& to) {
    places.put(value, to);
    touch(value);
  }

  bool place_outputs() {
    for (size_t i : change_.outputs) {
      const Value* value = subject_.program.outputs[i].value;
      const Value* root = values.home(value);
      const auto direct = decisions_.direct.find(root);
      const bool here = direct != decisions_.direct.end() && direct->second.where == Where::output;
      if (here ? direct->second.index != i : root->kind != ValueKind::result || !values.sizes().writes(value)) continue;
      const Box part = values.sizes().part(value);
      if ((subject_.device().uses_host_memory() && part.contiguous()) != here) return false;
      if (!here) continue;
      Location place = direct->second;
      place.skip = skip_of(part, value);
      if (place.skip != direct->second.skip) move(root, place);
    }
    return true;
  }

  bool place_inputs() {
    for (size_t i : change_.inputs) {
      const Value* value = subject_.program.inputs[i].value;
      Location place = *places.find(value);
      Box part = values.sizes().part(value);
      if (is_in_input(subject_.device(), part) != (place.where == Where::input)) return false;
      if (place.where == Where::input) {
        const size_t skip = skip_of(part, value);
        if (skip == place.skip) continue;
        place.skip = skip;
        move(value, place);
      } else {
        const size_t bytes = bytes_of(value->dtype(), part.count());
        arena_.resize(place.index, bytes);
        auto copy = std::find_if(machine.inputs.begin(), machine.inputs.end(),
                                 [&](const HostCopy& copy) { return copy.port == i; });
        part = CopiedBox(std::move(part), value->dtype()).box;
        copy->staged = is_staged(subject_.device(), part);
        copy->bytes = bytes;
        copy->box = std::move(part);
      }
    }
    return true;
  }

  // Moves views whose offset, or whose base, has changed.
  void move_views(const std::map<const Value*, Alias>& views) {
    if (views.empty() && !places.any_moved()) return;
    for (const auto& [value, view] : decisions_.grouping->views) {
      if (!places.find(value) || (!views.contains(value) && !places.is_moved(view.base))) continue;
      Location place = *places.find(view.base);
      place.skip += values.skip_of(*values.view_of(value), value);
      move(value, place);
    }
  }

  // Prepares communications again, since the order depends on them. Returns false if the order changes.
  bool order(const std::vector<const Value*>& changed) {
    const std::vector<NodeGroup>& groups = decisions_.grouping->groups;
    for (int step : change_.communications) {
      communications_.emplace(step, prepare_communication(*subject_.rank, groups[step], values.sizes()));
      touched_.insert(step);
    }
    if (decisions_.communicates) {
      std::vector<size_t> scratch;
      for (int step = 0; step < static_cast<int>(groups.size()); ++step) {
        const auto again = communications_.find(step);
        const auto& made =
            again != communications_.end() ? again->second.communication : machine.steps[step]->communication;
        scratch.push_back(made ? made->scratch_bytes() : 0);
      }
      const Tasks tasks = tasks_of(subject_, groups, values, scratch, decisions_.states.over, decisions_.direct);
      return order_of(tasks, groups, decisions_.regions, subject_.options) == decisions_.order.actions;
    }
    if (const device::MemoryLimit* limit = subject_.rank->memory_limit())
      for (const Value* value : changed)
        if (value->kind == ValueKind::result && values.home(value) == value)
          limit->require(values.type(value).bytes(), value->name);
    return true;
  }

  // Returns false if a step needs other buffers.
  bool prepare_steps() {
    std::vector<int> again(touched_.begin(), touched_.end());
    std::sort(again.begin(), again.end(),
              [this](int a, int b) { return decisions_.order.spans[a].begin < decisions_.order.spans[b].begin; });
    const StepSources of{subject_, decisions_.grouping->groups, values, decisions_.packed, known, places};
    const ResultSources results{of, decisions_.order, decisions_.uses, decisions_.direct};
    for (int step : again) {
      const Step& before = *decisions_.machine.steps[step];
      const auto fresh = communications_.find(step);
      auto made = std::make_shared<Step>(
          prepare_step(of, step,
                       fresh != communications_.end() ? fresh->second
                                                      : PreparedCommunication{before.communication, before.info, {}}));
      if (!place_step_again(results, step, before, *made, arena_)) return false;
      made->cost = cost_of(of.groups[step], *made, values.sizes().number(decisions_.flops[step]));
      machine.steps[step] = std::move(made);
    }
    return true;
  }

  const Subject& subject_;
  const Decisions& decisions_;
  const Change& change_;
  Arena arena_;
  std::set<int> touched_;                                // steps to be prepared again
  std::map<int, PreparedCommunication> communications_;  // that are prepared again, by step
};

// The views whose offsets or strides differ; nullopt if there are other groups or views.
std::optional<std::map<const Value*, Alias>> moved_views(const Grouping& grouping,
                                                         const std::vector<const Value*>& changed, const Sizes& sizes) {
  auto moved = grouping.again->views(changed, {[&](const Value* value) { return sizes.type(value); },
                                               [&](const Value* value) { return sizes.elements(value); }});
  if (moved)
    std::erase_if(*moved, [&](const auto& view) {
      const Alias& before = grouping.views.at(view.first);
      return view.second.offset == before.offset && view.second.strides == before.strides;
    });
  return moved;
}

}  // namespace

std::unique_ptr<Binding> rebound(const Binding& like, const Symbols& symbols) {
  const Subject& subject = like.subject_;
  const Decisions& decisions = *like.decisions_;
  const auto differing = changed_symbols(decisions.symbols, symbols);
  if (!differing || !decisions.regions.empty() || !decisions.grouping->again) return nullptr;
  try {
    const Change& change = decisions.dependents.on(*differing);
    const Sizes& before = like.values_.sizes();
    const Changed changed = changed_values(decisions, change, before.at(symbols, {}), before.known());
    Sizes sizes = before.at(symbols, changed.extents);
    const auto views = moved_views(*decisions.grouping, changed.values, sizes);
    if (!views) return nullptr;
    Rebinding again(subject, decisions, change, like.values_.at(std::move(sizes), *views), like.places_.fresh(),
                    like.known_.fresh());
    if (!again.make(changed, *views)) return nullptr;
    return std::make_unique<Binding>(subject, like.decisions_, std::move(again.values), std::move(again.places),
                                     std::move(again.known), std::move(again.machine));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;
    return nullptr;  // a binding from scratch reports the errors of these sizes in its own order
  }
}

}  // namespace tessera::bind

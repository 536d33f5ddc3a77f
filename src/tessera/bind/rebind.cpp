#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/bind/frame.h"

/// A binding for other sizes, derived from the frame that it shares with an existing binding.
///
/// Example: a decoder reads a cache of 128 positions, then one of 129. 24 of its 300 steps join the cache with new
/// positions, 12 attend to it, and one makes the mask. Only their values have other extents; every other step is the
/// same object in both bindings, and all steps use the same buffers, some of which are longer.
///
/// Invariant: a binding's decisions, made one after the other, depend only on extents and on earlier decisions. So if
/// every decision that reads a changed extent comes out as before, all decisions do. Those decisions are made again
/// here; as soon as one changes, a binding is made from scratch. Numbers (extents, bytes, offsets of views) are
/// computed again without a comparison, and places in the arena come last, from the bytes of all buffers.
namespace tessera::bind {
namespace {

std::set<std::string> symbols_of(const Shape& expressions) {
  std::set<std::string> symbols;
  for (const Expr& expression : expressions) expression.collect_symbols(symbols);
  return symbols;
}

bool names_one(const std::set<std::string>& symbols, const std::vector<std::string>& of) {
  return std::any_of(of.begin(), of.end(), [&](const std::string& symbol) { return symbols.contains(symbol); });
}

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

}  // namespace

// The first binding has everything in the frame that a binding for other sizes may take over.
void Binding::keep_for_other_sizes() {
  Frame& frame = *frame_;
  for (size_t g = 0; g < frame.groups.size(); ++g)
    for (const auto* values : {&frame.groups[g].inputs, &frame.groups[g].outputs})
      for (const Value* value : *values) {
        if (!value) continue;
        frame.steps_of[value].push_back(static_cast<int>(g));
        if (home(value) != value) frame.steps_of[home(value)].push_back(static_cast<int>(g));
      }
  frame.dims = std::exchange(dims_, {});
  frame.locations = std::exchange(locations_, {});
  frame.bound_expressions = std::exchange(bound_expressions_, {});
  frame.host_elements = std::exchange(host_elements_, {});
  frame.machine = machine_;
}

Binding::Binding(const Binding& like, const Symbols& symbols)
    : rank_(like.rank_),
      program_(like.program_),
      symbols_(symbols),
      options_(like.options_),
      machine_(like.frame_->machine),
      frame_(like.frame_) {}

std::unique_ptr<Binding> Binding::rebound(const Binding& like, const Symbols& symbols) {
  // Kernels in pieces let the communications of their own run advance.
  const bool may_have_pieces = like.frame_->communicates && like.rank_->advances_by_tests();
  if (!like.frame_->flow.empty()) return nullptr;
  if (!like.frame_->again || (may_have_pieces && !like.rank_->device().is_asynchronous())) return nullptr;
  std::unique_ptr<Binding> binding(new Binding(like, symbols));
  try {
    if (!binding->rebind()) return nullptr;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;
    return nullptr;  // a binding from scratch reports errors of these sizes in its own order
  }
  return binding;
}

bool Binding::rebind() {
  const auto symbols = changed_symbols(frame_->symbols, symbols_);
  if (!symbols || !bind_changed(*symbols)) return false;
  std::vector<int> again(touched_.begin(), touched_.end());
  std::sort(again.begin(), again.end(),
            [this](int a, int b) { return frame_->spans[a].begin < frame_->spans[b].begin; });
  for (int step : again)
    if (!prepare_again(step)) return false;
  place_exchanges();
  copy_outputs();
  place_buffers();
  return true;
}

const Binding::Change& Binding::change_of(const std::vector<std::string>& symbols) const {
  auto [known, fresh] = frame_->changes.try_emplace(symbols);
  Change& change = known->second;
  if (!fresh) return change;
  for (const auto& [value, dims] : frame_->dims)
    if (names_one(symbols_of(value->shape()), symbols)) change.extents.push_back(value);
  for (const auto& [value, elements] : frame_->elements)
    if (names_one(symbols_of(*value->content), symbols)) change.elements.push_back(value);
  const auto parts_change = [&](const Value* value) {
    if (!value) return false;  // it lives elsewhere
    if (program_.placement(value).sharding.is_whole())
      return !rank_->device().uses_host_memory() && names_one(symbols_of(value->shape()), symbols);
    Shape sizes;
    for (const DimSharding& dim : program_.placement(value).sharding.dims)
      for (const Part& part : dim.parts) sizes.push_back(part.size);
    return names_one(symbols_of(sizes), symbols);
  };
  for (size_t i = 0; i < program_.inputs.size(); ++i)
    if (parts_change(program_.inputs[i].value)) change.inputs.push_back(i);
  for (size_t i = 0; i < program_.outputs.size(); ++i)
    if (parts_change(program_.outputs[i].value)) change.outputs.push_back(i);
  for (size_t step = 0; step < frame_->asked.size(); ++step)
    if (std::any_of(symbols.begin(), symbols.end(),
                    [&](const std::string& symbol) { return frame_->asked[step].contains(symbol); }))
      change.communications.push_back(static_cast<int>(step));
  return change;
}

// Finds values with other numbers, and the steps that see them. False: a decision changes.
bool Binding::bind_changed(const std::vector<std::string>& symbols) {
  const Change& change = change_of(symbols);
  std::vector<const Value*> changed;
  for (const Value* value : change.extents) {
    Dims dims = bound_dims(value);
    if (dims == frame_->dims.at(value)) continue;
    require_countable(value->dtype(), dims, value->name);
    dims_.emplace(value, std::move(dims));
    changed.push_back(value);
  }
  for (const Value* value : change.elements) {
    const std::vector<int64_t> elements = bound(*value->content);
    if (elements == frame_->elements.at(value)) continue;
    place_expression(value, elements);
    if (!dims_.contains(value)) changed.push_back(value);
  }
  const auto moved = frame_->again->views(changed, {[this](const Value* value) { return plain_desc(value); },
                                                    [this](const Value* value) { return known_ints(value); }});
  if (!moved) return false;
  for (const auto& [value, placed] : *moved) {
    const Alias& before = frame_->views.at(value);
    if (placed.offset == before.offset && placed.strides == before.strides) continue;
    views_[value] = placed;
    touch(value);
  }
  for (const Value* value : changed) touch(value);
  if (!place_changed_outputs(change) || !place_changed_inputs(change)) return false;
  move_views();
  for (int step : change.communications) {
    machine_.steps[step] = std::make_shared<Step>();
    prepare_communication_of(step);
    touched_.insert(step);
  }
  if (frame_->communicates) return order(tasks()) == frame_->actions;
  if (const device::MemoryLimit* limit = rank_->memory_limit())
    for (const Value* value : changed)
      if (value->kind == ValueKind::result && home(value) == value) limit->require(desc(value).bytes(), value->name);
  return true;
}

bool Binding::place_changed_outputs(const Change& change) {
  for (size_t i : change.outputs) {
    const Value* value = program_.outputs[i].value;
    const Value* root = home(value);
    const auto direct = frame_->direct.find(root);
    const bool here = direct != frame_->direct.end() && direct->second.where == Where::output;
    if (here ? direct->second.index != i : root->kind != ValueKind::result || !writes(value)) continue;
    const Box part = box(value);
    if ((rank_->device().uses_host_memory() && part.contiguous()) != here) return false;
    if (!here) continue;
    Location place = direct->second;
    place.skip = skip_of(part, value);
    if (place.skip != direct->second.skip) move(root, place);
  }
  return true;
}

bool Binding::place_changed_inputs(const Change& change) {
  for (size_t i : change.inputs) {
    const Value* value = program_.inputs[i].value;
    Location place = frame_->locations.at(value);
    Box part = box(value);
    if (lies_in_input(part) != (place.where == Where::input)) return false;
    if (place.where == Where::input) {
      const size_t skip = skip_of(part, value);
      if (skip == place.skip) continue;
      place.skip = skip;
      move(value, place);
    } else {
      machine_.buffers[place.index].bytes = bytes_of(value->dtype(), part.count());
      auto copy = std::find_if(machine_.inputs.begin(), machine_.inputs.end(),
                               [&](const HostCopy& copy) { return copy.port == i; });
      part = CopiedBox(std::move(part), value->dtype()).box;
      copy->staged = is_staged(part);
      copy->bytes = machine_.buffers[place.index].bytes;
      copy->box = std::move(part);
    }
  }
  return true;
}

// Views that lie elsewhere in their base's memory, or whose base lies elsewhere.
void Binding::move_views() {
  if (views_.empty() && locations_.empty()) return;
  for (const auto& [value, view] : frame_->views) {
    if (!frame_->locations.contains(value) || (!views_.contains(value) && !locations_.contains(view.base))) continue;
    Location place = *located(view.base);
    place.skip += skip_of(*view_of(value), value);
    move(value, place);
  }
}

void Binding::move(const Value* value, const Location& to) {
  locations_[value] = to;
  touch(value);
}

// Marks all steps that see the value to be prepared again.
void Binding::touch(const Value* value) {
  if (auto steps = frame_->steps_of.find(value); steps != frame_->steps_of.end())
    touched_.insert(steps->second.begin(), steps->second.end());
}

// False: the step wants other buffers.
bool Binding::prepare_again(int step) {
  auto made = std::make_shared<Step>();
  before_ = frame_->machine.steps[step].get();
  made->meanwhile = before_->meanwhile;
  made->communication = machine_.steps[step]->communication;
  made->info = machine_.steps[step]->info;
  machine_.steps[step] = std::move(made);
  prepare(step);
  place_results_of(step);
  machine_.steps[step]->cost = cost_of(step);
  before_ = nullptr;
  return !differs_;
}

}  // namespace tessera::bind

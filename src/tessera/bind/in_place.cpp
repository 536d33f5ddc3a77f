#include <fmt/format.h>

#include <algorithm>

#include "tessera/bind/frame.h"

/// Where results are made: in memory of their own, of the caller, of a state, or of an operand that ends here.
namespace tessera::bind {

// In running order, since a result may take over the memory of an operand that nobody needs any more.
void Binding::place_results() {
  for (const auto& [step, phase] : frame_->actions)
    if (phase != Phase::wait) place_results_of(step);
  for (const Value* output : program_.graph->outputs) locate(output);
  place_exchanges();
  // Buffers that change places from iteration to iteration both live as long as either, also where a result behind the
  // loop has taken one of them over: its memory may be the other's by then.
  for (const auto& loop : machine_.loops)
    for (const auto& [now, next] : loop.exchanged) {
      Lifetime &one = machine_.buffers[now], &other = machine_.buffers[next];
      one.first = other.first = std::min(one.first, other.first);
      one.last = other.last = std::max(one.last, other.last);
    }
  if (options_.keep_all)
    for (const auto& [value, view] : frame_->views) locate(value);
}

void Binding::place_results_of(int step) {
  const NodeGroup& group = frame_->groups[step];
  const Span& span = frame_->spans[step];
  Step& made = *machine_.steps[step];
  for (size_t i = 0; i < group.inputs.size(); ++i) made.inputs.push_back(place_of_operand(step, i));
  for (const Location& operand : made.inputs)
    made.last_uses.push_back(operand.where == Where::arena ? machine_.buffers[operand.index].last : -1);
  if (before_) made.last_uses = before_->last_uses;
  made.taken_over.assign(group.outputs.size(), -1);
  for (size_t r = 0; r < group.outputs.size(); ++r) {
    const Location& place = made.outputs.emplace_back(place_of_result(step, r));
    made.writes_state |= place.where == Where::state;
  }
  if (before_) differs_ |= made.taken_over != before_->taken_over;
  const size_t scratch = made.scratch_bytes();
  if (before_) {
    made.scratch = before_->scratch;
    differs_ |= (scratch > 0) != (made.scratch >= 0);
    if (made.scratch >= 0) machine_.buffers[made.scratch].bytes = scratch;
  } else if (scratch > 0) {
    made.scratch =
        new_buffer(scratch, span, {nullptr, fmt::format("scratch memory of {} '{}'", made.info.op, made.info.name)});
  }
}

Location Binding::place_of_operand(int step, size_t index) {
  if (const PackedWeight* packed = packed_operand(step, index)) return packed->place;
  const Value* operand = frame_->groups[step].inputs[index];
  return operand ? locate(operand) : Location{};
}

// Chooses the place; a binding for other sizes repeats only the choice of an operand to take over.
Location Binding::place_of_result(int step, size_t index) {
  const NodeGroup& group = frame_->groups[step];
  const Span& span = frame_->spans[step];
  Step& made = *machine_.steps[step];
  if (!group.outputs[index]) return {};
  const Value* result = home(group.outputs[index]);
  if (frame_->direct.contains(result)) {
    if (!before_) locations_[result] = frame_->direct.at(result);
    return *located(result);
  }
  auto operand = std::find_if(made.in_place.begin(), made.in_place.end(), [&](int operand) {
    const bool of_another = !group.bucket.empty() && operand != static_cast<int>(index);
    return !of_another && can_take_over(step, operand, index);
  });
  const bool taken = operand != made.in_place.end();
  if (taken) made.taken_over[index] = *operand;
  if (before_) {
    const Location& place = before_->outputs[index];
    if (!taken) machine_.buffers[place.index].bytes = made.results[index].bytes();
    return place;
  }
  const size_t buffer = taken ? made.inputs[*operand].index
                              : static_cast<size_t>(new_buffer(made.results[index].bytes(), span,
                                                               {result, fmt::format("'{}'", result->name)}));
  Lifetime& life = machine_.buffers[buffer];
  life.last = std::max({life.last, span.end, last_use(result)});
  return locations_[result] = {Where::arena, buffer, nullptr, 0};
}

// Whether a result may be made in the memory of operand `index`, which the kernel allows.
bool Binding::can_take_over(int step, int index, size_t result) const {
  const NodeGroup& group = frame_->groups[step];
  const Span& span = frame_->spans[step];
  const Step& made = *machine_.steps[step];
  if (options_.keep_all || !made.results[result].strides.empty()) return false;
  if (result > 0 && group.followers.empty() && group.bucket.empty()) return false;
  if (index >= static_cast<int>(group.inputs.size()) || !group.inputs[index]) return false;
  const Location& operand = made.inputs[index];
  if (operand.where != Where::arena || operand.skip != 0) return false;
  const kernels::TensorDesc &given = made.operands[index], &wanted = made.results[result];
  if (!given.strides.empty() || given.count() != wanted.count() || given.bytes() != wanted.bytes()) return false;
  if (group.bucket.empty() && !is_read_before(group, index, result)) return false;
  const bool is_given_away = std::any_of(made.taken_over.begin(), made.taken_over.end(), [&](int other) {
    return other >= 0 && made.inputs[other].index == operand.index;
  });
  if (is_given_away) return false;
  const Lifetime& life = machine_.buffers[operand.index];
  if (made.last_uses[index] != span.end || life.bytes != wanted.bytes()) return false;
  // Nobody else reads it from now on, as a communication under way may.
  const std::vector<Span>& uses = frame_->uses.at(home(group.inputs[index]));
  if (std::any_of(uses.begin(), uses.end(),
                  [&](const Span& use) { return use.begin != span.begin && use.end >= span.begin; }))
    return false;
  // Another operand that reads the same memory does no harm only where it is the same value and both are read
  // element by element (Mul of x by x, but not a scatter of x into x).
  for (int other = 0; other < static_cast<int>(group.inputs.size()); ++other) {
    const Location& place = made.inputs[other];
    if (other == index || place.where != Where::arena || place.index != operand.index) continue;
    if (!group.bucket.empty()) return false;
    const bool element_by_element = std::find(made.in_place.begin(), made.in_place.end(), other) != made.in_place.end();
    if (!element_by_element || group.inputs[other] != group.inputs[index] || !is_read_before(group, other, result))
      return false;
  }
  return true;
}

}  // namespace tessera::bind

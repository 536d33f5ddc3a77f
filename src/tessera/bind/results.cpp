#include "tessera/bind/results.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::bind {
namespace {

using Where = Location::Where;

// Whether the step also reads the memory of operand `index` through another operand. This is harmless only if both are
// the same value and are read element by element (Mul of x by x, but not a scatter of x into x).
bool is_read_otherwise(const NodeGroup& group, const Step& made, int index, size_t result) {
  for (int other = 0; other < static_cast<int>(group.inputs.size()); ++other) {
    const Location& place = made.inputs[other];
    if (other == index || place.where != Where::arena || place.index != made.inputs[index].index) continue;
    if (!group.bucket.empty()) return true;
    const bool element_by_element = std::find(made.in_place.begin(), made.in_place.end(), other) != made.in_place.end();
    if (!element_by_element || group.inputs[other] != group.inputs[index] || !is_read_before(group, other, result))
      return true;
  }
  return false;
}

// Whether the kernel and the types allow the result in the memory of operand `index`.
bool can_hold(const NodeGroup& group, const Step& made, int index, size_t result) {
  if (!made.results[result].strides.empty()) return false;
  if (result > 0 && group.followers.empty() && group.bucket.empty()) return false;
  if (index >= static_cast<int>(group.inputs.size()) || !group.inputs[index]) return false;
  const Location& operand = made.inputs[index];
  if (operand.where != Where::arena || operand.skip != 0) return false;
  const kernels::TensorDesc &given = made.operands[index], &wanted = made.results[result];
  if (!given.strides.empty() || given.count() != wanted.count() || given.bytes() != wanted.bytes()) return false;
  return !group.bucket.empty() || is_read_before(group, index, result);
}

// Whether a result may be made in the memory of operand `index`, which the kernel allows.
bool can_take_over(const ResultSources& of, int step, const Step& made, const Arena& arena, int index, size_t result) {
  const NodeGroup& group = of.steps.groups[step];
  const Span& span = of.order.spans[step];
  if (of.steps.subject.options.keep_all || !can_hold(group, made, index, result)) return false;
  if (of.steps.values.view_of(group.outputs[result])) return false;  // made in another's memory
  const size_t buffer = made.inputs[index].index;
  const bool is_given_away = std::any_of(made.taken_over.begin(), made.taken_over.end(),
                                         [&](int other) { return other >= 0 && made.inputs[other].index == buffer; });
  if (is_given_away) return false;
  if (made.last_uses[index] != span.end || arena[buffer].bytes != made.results[result].bytes()) return false;
  // A communication under way may still read it.
  const std::vector<Span>& uses = of.uses.of(of.steps.values.home(group.inputs[index]));
  if (std::any_of(uses.begin(), uses.end(),
                  [&](const Span& use) { return use.begin != span.begin && use.end >= span.begin; }))
    return false;
  return !is_read_otherwise(group, made, index, result);
}

// The operand whose memory the result takes over; -1: none.
int operand_taken_over(const ResultSources& of, int step, const Step& made, const Arena& arena, size_t result) {
  const NodeGroup& group = of.steps.groups[step];
  auto operand = std::find_if(made.in_place.begin(), made.in_place.end(), [&](int operand) {
    const bool of_another = !group.bucket.empty() && operand != static_cast<int>(result);
    return !of_another && can_take_over(of, step, made, arena, operand, result);
  });
  return operand == made.in_place.end() ? -1 : *operand;
}

void place_operands(const ResultSources& of, int step, Step& made) {
  const NodeGroup& group = of.steps.groups[step];
  for (size_t i = 0; i < group.inputs.size(); ++i) made.inputs.push_back(of.steps.place_of_operand(step, i));
  made.taken_over.assign(group.outputs.size(), -1);
}

// A result may be a part of what it is made in (views.h).
Location part_of(const ResultSources& of, const Value* stored, Location home) {
  if (const Alias* view = of.steps.values.view_of(stored)) home.skip += of.steps.values.skip_of(*view, stored);
  return home;
}

Location place_result(const ResultSources& of, int step, Step& made, size_t index, Arena& arena) {
  const Span& span = of.order.spans[step];
  const Value* stored = of.steps.groups[step].outputs[index];
  if (!stored) return {};
  const Value* result = of.steps.values.home(stored);
  if (auto direct = of.direct.find(result); direct != of.direct.end())
    return part_of(of, stored, of.steps.places.put(result, direct->second));
  if (const Location* begun = stored == result ? nullptr : of.steps.places.find(result)) {
    arena.extend(begun->index, span.end);
    return part_of(of, stored, *begun);
  }
  const int taken = made.taken_over[index] = operand_taken_over(of, step, made, arena, index);
  const size_t buffer =
      taken >= 0 ? made.inputs[taken].index
                 : arena.add(of.steps.values.type(result).bytes(), span, {result, fmt::format("'{}'", result->name)});
  arena.extend(buffer, std::max(span.end, of.uses.last(result)));
  return part_of(of, stored, of.steps.places.put(result, {Where::arena, buffer, nullptr, 0}));
}

}  // namespace

void place_step(const ResultSources& of, int step, Step& made, Arena& arena) {
  place_operands(of, step, made);
  for (const Location& operand : made.inputs)
    made.last_uses.push_back(operand.where == Where::arena ? arena[operand.index].last : -1);
  for (size_t r = 0; r < made.results.size(); ++r) {
    const Location& place = made.outputs.emplace_back(place_result(of, step, made, r, arena));
    made.writes_state |= place.where == Where::state;
  }
  if (const size_t scratch = made.scratch_bytes(); scratch > 0)
    made.scratch =
        static_cast<int>(arena.add(scratch, of.order.spans[step],
                                   {nullptr, fmt::format("scratch memory of {} '{}'", made.info.op, made.info.name)}));
}

bool place_step_again(const ResultSources& of, int step, const Step& before, Step& made, Arena& arena) {
  place_operands(of, step, made);
  made.last_uses = before.last_uses;
  for (size_t r = 0; r < made.results.size(); ++r) {
    const Value* stored = of.steps.groups[step].outputs[r];
    Location place;
    if (stored && of.direct.contains(of.steps.values.home(stored))) {
      place = part_of(of, stored, *of.steps.places.find(of.steps.values.home(stored)));
    } else if (stored) {
      made.taken_over[r] = operand_taken_over(of, step, made, arena, r);
      place = before.outputs[r];
      if (made.taken_over[r] < 0) arena.resize(place.index, of.steps.values.type(of.steps.values.home(stored)).bytes());
    }
    made.outputs.push_back(place);
    made.writes_state |= place.where == Where::state;
  }
  const size_t scratch = made.scratch_bytes();
  made.scratch = before.scratch;
  if (made.scratch >= 0) arena.resize(made.scratch, scratch);
  return made.taken_over == before.taken_over && (scratch > 0) == (made.scratch >= 0);
}

}  // namespace tessera::bind

#include <algorithm>

#include "tessera/bind/frame.h"

/// Where results are made: in memory of their own, of the caller, of a state, or of an operand that ends here.
namespace tessera::bind {

void Binding::place_results(const NodeGroup& group, const Span& span, const std::vector<int>& in_place,
                            const kernels::PrepareContext& context, Step& made) {
  for (size_t r = 0; r < group.outputs.size(); ++r) {
    if (!group.outputs[r]) {
      made.outputs.emplace_back();
      continue;
    }
    const Value* result = home(group.outputs[r]);
    if (frame_->direct.contains(result)) {
      if (!before_) locations_[result] = frame_->direct.at(result);
      made.outputs.push_back(*located(result));
      continue;
    }
    if (r == 0)
      for (int index : in_place) {
        if (!can_take_over(group, span, in_place, index, context, made)) continue;
        made.taken_over = index;
        break;
      }
    if (before_) {
      made.outputs.push_back(before_->outputs[r]);
      if (r > 0 || made.taken_over < 0) machine_.buffers[made.outputs[r].index].bytes = context.outputs[r].bytes();
      continue;
    }
    int buffer = r == 0 && made.taken_over >= 0 ? static_cast<int>(made.inputs[made.taken_over].index) : -1;
    const int last = std::max(span.end, last_use(result));
    if (buffer < 0) buffer = new_buffer(context.outputs[r].bytes(), span);
    machine_.buffers[buffer].last = std::max(machine_.buffers[buffer].last, last);
    Location place{Where::arena, static_cast<size_t>(buffer), nullptr, 0};
    locations_[result] = place;
    made.outputs.push_back(place);
  }
  if (before_) differs_ |= made.taken_over != before_->taken_over;
}

// Whether the first result may be made in the memory of operand `index`, which the kernel allows.
bool Binding::can_take_over(const NodeGroup& group, const Span& span, const std::vector<int>& in_place, int index,
                            const kernels::PrepareContext& context, const Step& made) const {
  if (options_.keep_all || !context.outputs[0].strides.empty()) return false;
  if (index >= static_cast<int>(group.inputs.size()) || !group.inputs[index]) return false;
  const Location& operand = made.inputs[index];
  if (operand.where != Where::arena || operand.skip != 0) return false;
  const kernels::TensorDesc &given = context.inputs[index], &wanted = context.outputs[0];
  if (!given.strides.empty() || given.count() != wanted.count() || given.bytes() != wanted.bytes()) return false;
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
    const bool element_by_element = std::find(in_place.begin(), in_place.end(), other) != in_place.end();
    if (!element_by_element || group.inputs[other] != group.inputs[index]) return false;
  }
  return true;
}

}  // namespace tessera::bind

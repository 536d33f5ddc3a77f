#include <algorithm>
#include <cstring>
#include <utility>

#include "tessera/runtime/plan_frame.h"

namespace tessera::runtime {
namespace {

/// A test of a communication takes a microsecond or more, and small kernels no longer.
constexpr std::chrono::microseconds kBetweenTests{100};

}  // namespace

std::byte* RankPlan::resolve(const Location& location, std::byte* arena) const {
  switch (location.where) {
    case Where::none:
      return nullptr;
    case Where::arena:
      return arena + memory_.offsets[location.offset] + location.skip;
    case Where::fixed:
      return static_cast<std::byte*>(const_cast<void*>(location.address)) + location.skip;
    case Where::input:
      return static_cast<std::byte*>(const_cast<void*>(inputs_[location.offset])) + location.skip;
    case Where::output:
      return static_cast<std::byte*>(outputs_[location.offset]) + location.skip;
    case Where::state:
      return frame_->slots[location.offset]->current.get() + location.skip;
    case Where::next:
      return frame_->slots[location.offset]->spare.get() + location.skip;
  }
  return nullptr;
}

void RankPlan::run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, RankTimes* times) {
  const std::vector<Action>& actions = frame_->actions;
  if (times) {
    times->steps = frame_->infos;
    times->end.resize(actions.size());
    times->begin = RankTimes::Clock::now();
  }
  inputs_ = inputs;
  outputs_ = outputs;
  std::byte* arena = rank_.arena(memory_.bytes);
  if (frame_->name_of_action.size() < actions.size()) write_step_names();
  std::atomic<const char*>& step_name = rank_.flight().step;
  for (const InputCopy& copy : copies_)
    copy_from_whole(arena + memory_.offsets[copy.buffer], inputs[copy.input], copy.box, copy.element);
  if (times) times->inputs = RankTimes::Clock::now();
  under_way_.clear();
  for (size_t a = 0; a < actions.size(); ++a) {
    step_name.store(frame_->name_of_action[a], std::memory_order_release);
    take(actions[a], arena);
    if (times) times->end[a] = RankTimes::Clock::now();
  }
  step_name.store(nullptr, std::memory_order_release);
  for (size_t i = 0; i < program_.outputs.size(); ++i) {
    if (!program_.outputs[i].value) continue;  // it lives elsewhere
    const Location& made = *located(program_.outputs[i].value);
    if (made.where != Where::output || made.offset != i) store(program_.outputs[i].value, outputs[i]);
  }
  for (const Frame::Exchange& exchange : frame_->exchanges) {
    StateSlot& slot = *frame_->slots[exchange.slot];
    if (exchange.copied && slot.bytes > 0)
      std::memcpy(slot.spare.get(), resolve(*located(exchange.copied), arena), slot.bytes);
  }
  if (times) times->outputs = RankTimes::Clock::now();
}

void RankPlan::commit() {
  for (const Frame::Exchange& exchange : frame_->exchanges) {
    StateSlot& slot = *frame_->slots[exchange.slot];
    std::swap(slot.current, slot.spare);
  }
  rank_.states().is_writing = false;
}

void RankPlan::take(const Action& action, std::byte* arena) {
  Step& step = *steps_[action.task];
  if (action.phase != Phase::wait) {
    for (size_t i = 0; i < step.inputs.size(); ++i) step.in[i] = resolve(step.inputs[i], arena);
    for (size_t i = 0; i < step.outputs.size(); ++i) step.out[i] = resolve(step.outputs[i], arena);
  }
  if (step.writes_state) rank_.states().is_writing = true;
  const kernels::KernelArgs args{step.in, step.out, step.scratch < 0 ? nullptr : arena + memory_.offsets[step.scratch]};
  switch (action.phase) {
    case Phase::run:
      step.kernel->run(args);
      advance_communication();
      return;
    case Phase::start:
      step.communication->start(args);
      under_way_.push_back(action.task);
      return;
    case Phase::wait:
      step.communication->wait(args);
      std::erase(under_way_, action.task);
      return;
  }
}

void RankPlan::advance_communication() {
  if (under_way_.empty() || !rank_.advances_by_tests()) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - advanced_ < kBetweenTests) return;
  advanced_ = now;
  for (int step : under_way_) steps_[step]->communication->advance();
}

void RankPlan::write_step_names() {
  std::string all;
  std::vector<size_t> starts;
  for (const StepInfo& info : *frame_->infos) {
    starts.push_back(all.size());
    all += info.op + " '" + info.name + "'";
    all += '\0';
  }
  frame_->names = rank_.shared_memory(all.size() + 1, "names");
  std::memcpy(frame_->names.get(), all.data(), all.size());
  for (size_t start : starts)
    frame_->name_of_action.push_back(reinterpret_cast<const char*>(frame_->names.get()) + start);
}

void RankPlan::store(const Value* value, void* whole) const {
  if (!writes(value)) return;
  const std::byte* local = resolve(*located(value), rank_.arena(memory_.bytes));
  copy_to_whole(whole, local, box(value), static_cast<size_t>(bits_of(value->dtype())) / 8);
}

}  // namespace tessera::runtime

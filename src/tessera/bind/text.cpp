#include <fmt/ranges.h>

#include "tessera/bind/binding.h"
#include "tessera/bind/decisions.h"

namespace tessera::bind {
namespace {

std::string text_of(const Location& place) {
  std::string text;
  switch (place.where) {
    case Location::Where::none:
      return "-";
    case Location::Where::arena:
      text = fmt::format("buffer {}", place.index);
      break;
    case Location::Where::fixed:
      text = "fixed";
      break;
    case Location::Where::input:
      text = fmt::format("input {}", place.index);
      break;
    case Location::Where::output:
      text = fmt::format("output {}", place.index);
      break;
    case Location::Where::state:
      text = fmt::format("state {}", place.index);
      break;
    case Location::Where::next:
      text = fmt::format("next {}", place.index);
      break;
  }
  if (place.skip > 0) text += fmt::format("+{}", place.skip);
  return text;
}

std::string text_of(const std::vector<Location>& places, const std::vector<kernels::TensorDesc>& types) {
  std::string text;
  for (size_t i = 0; i < places.size(); ++i)
    text += fmt::format("{}{} {}", i ? ", " : "", text_of(places[i]), type_text(types[i]));
  return text;
}

std::string text_of(const Cost& cost) {
  std::string text;
  if (cost.flops > 0) text += fmt::format(" flops={:.0f}", cost.flops);
  text += fmt::format(" read={} written={}", cost.read, cost.written);
  if (cost.received > 0) text += fmt::format(" received={}", cost.received);
  if (cost.sent > 0) text += fmt::format(" sent={}", cost.sent);
  return text;
}

std::string_view name_of_phase(Phase phase) {
  switch (phase) {
    case Phase::run:
      return "run";
    case Phase::start:
      return "start";
    case Phase::wait:
      return "wait";
  }
  return "";
}

std::string text_of(const HostCopy& copy, std::string_view caller) {
  std::string text = fmt::format("{} {}, {} at {} of {}", caller, copy.port, fmt::join(copy.box.extents, "x"),
                                 fmt::join(copy.box.offsets, ","), fmt::join(copy.box.dims, "x"));
  if (copy.staged) text += fmt::format(", through the host's copy at {}", copy.staging);
  return text;
}

std::string text_of(const MachineProgram& machine, const Control& control) {
  using Kind = Control::Kind;
  const auto loop = [&] { return fmt::format("loop {} '{}'", control.index, machine.loops[control.index].name); };
  switch (control.kind) {
    case Kind::act:
      return fmt::format("action {}", control.index);
    case Kind::open:
      return "begin " + loop();
    case Kind::test:
      return fmt::format("if it has no iteration to run, go to {}: {}", control.target, loop());
    case Kind::ask:
      return "read the condition of " + loop();
    case Kind::back: {
      std::string text = fmt::format("if it has another iteration, go to {}: {}", control.target, loop());
      for (const auto& [now, next] : machine.loops[control.index].exchanged)
        text += fmt::format(", buffers {} and {} change places", now, next);
      return text;
    }
    case Kind::branch:
      return fmt::format("if it is not taken, go to {}: branch {} '{}'", control.target, control.index,
                         machine.branches[control.index].name);
  }
  return "";
}

}  // namespace

std::string Binding::text() const {
  const Cost total = machine_.total();
  std::string text = fmt::format("arena {} bytes, {} actions on '{}':{}\n", machine_.arena_bytes,
                                 machine_.actions->size(), subject_.device().name(), text_of(total));
  for (const HostCopy& copy : machine_.inputs)
    text += fmt::format("copy {} -> {}\n", text_of(copy, "input"), text_of(copy.place));
  for (size_t a = 0; a < machine_.actions->size(); ++a) {
    const Enqueued& enqueued = (*machine_.actions)[a];
    const Step& step = *machine_.steps[enqueued.action.task];
    text += fmt::format("{}: {} {}", a, name_of_phase(enqueued.action.phase), step.info.op);
    if (!step.info.axes.empty()) text += fmt::format("<{}>", fmt::join(step.info.axes, ","));
    text += fmt::format(" '{}'", step.info.name);
    if (enqueued.queue != kComputing) text += fmt::format(" on the queue of {}", machine_.queues[enqueued.queue]);
    if (enqueued.after >= 0) text += fmt::format(" after {}", enqueued.after);
    if (enqueued.action.phase != Phase::wait) {
      text += fmt::format(": {} -> {}", text_of(step.inputs, step.operands), text_of(step.outputs, step.results));
      if (step.scratch >= 0) text += fmt::format(", scratch buffer {}", step.scratch);
      std::vector<int> needs;
      for (int other : (*machine_.needs)[enqueued.action.task]) needs.push_back(decisions_->order.spans[other].end);
      if (!needs.empty()) text += fmt::format("; needs {}", fmt::join(needs, ","));
      text += ";" + text_of(step.cost);
    }
    text += '\n';
  }
  for (size_t c = 0; c < machine_.controls.size(); ++c)
    text += fmt::format("control {}: {}\n", c, text_of(machine_, machine_.controls[c]));
  for (const HostCopy& copy : machine_.outputs)
    text += fmt::format("copy {} -> {}\n", text_of(copy.place), text_of(copy, "output"));
  for (const Exchange& exchange : machine_.exchanges) {
    if (exchange.copied) text += fmt::format("copy {} -> next {}\n", text_of(exchange.from), exchange.slot);
    text += fmt::format("exchange state {} '{}'\n", exchange.slot, machine_.slots[exchange.slot]->name);
  }
  for (size_t b = 0; b < machine_.buffers.size(); ++b) {
    const Lifetime& life = machine_.buffers[b];
    text += fmt::format("buffer {}: {} bytes at {}, actions {} to {}: {}\n", b, life.bytes, machine_.offsets[b],
                        life.first, life.last, (*machine_.occupants)[b].name);
  }
  for (size_t s = 0; s < machine_.slots.size(); ++s)
    text += fmt::format("state {}: '{}' {} bytes{}\n", s, machine_.slots[s]->name, machine_.slots[s]->bytes,
                        machine_.slots[s]->has_spare ? ", twice" : "");
  for (const auto& value : subject_.graph().values())
    if (value->kind == ValueKind::expression)
      text +=
          fmt::format("expression '{}' = {}\n", value->name, fmt::join(values_.sizes().numbers(*value->content), ","));
  return text;
}

}  // namespace tessera::bind

#include "tessera/runtime/rank_plan.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "tessera/bind/traits.h"
#include "tessera/runtime/bucket.h"

namespace tessera::runtime {
namespace {

using bind::Location;
using bind::Phase;
using kernels::KernelArgs;

/// Whether a kernel is expected to take a millisecond or more on so many threads.
bool takes_long(const bind::Cost& cost, int threads) {
  constexpr double kFlops = 5e7, kBytes = 5e6;  // of one, in a millisecond
  return cost.flops / kFlops + static_cast<double>(cost.read + cost.written) / kBytes >= threads;
}

/// The rank for binding, with the states of certain programs.
class RankOfPrograms : public bind::Rank {
 public:
  RankOfPrograms(RankState& rank, std::shared_ptr<const RankPrograms> programs)
      : rank_(rank), programs_(std::move(programs)) {}

  const Mesh& mesh() const override { return rank_.mesh(); }
  const std::vector<int64_t>& coordinates() const override { return rank_.coordinates(); }
  int threads() const override { return rank_.threads(); }
  const device::Device& device() const override { return rank_.device(); }
  const device::MemoryLimit* memory_limit() const override { return rank_.memory().limit(); }
  bind::KernelCache& kernels() override { return rank_.kernels(); }
  Tensor resident(const Tensor& tensor, std::string_view name) override {
    return rank_.memory().resident(tensor, name);
  }
  const Tensor& constant(const Value* constant) override { return rank_.constant(constant); }
  const Tensor& shard(const Value* state) override { return rank_.weights().shard(*programs_, state); }
  const Tensor& host_shard(const Value* state) override { return rank_.weights().host_shard(*programs_, state); }
  const Tensor& packed(const bind::WeightToPack& wanted) override { return rank_.weights().packed(*programs_, wanted); }
  StateSlot& slot(const Value* state) override { return rank_.slot(*programs_, state); }
  void need_spare(StateSlot& slot) override { rank_.need_spare(slot); }
  std::unique_ptr<bind::Communication> prepare_communication(const std::vector<const Node*>& nodes,
                                                             const SymbolLookup& symbols,
                                                             bind::StepInfo& info) override {
    return prepare_collectives(nodes, rank_, symbols, info);
  }

 private:
  RankState& rank_;
  std::shared_ptr<const RankPrograms> programs_;
};

/// While it lives, waits for the rank's queues also end by what `look` throws.
class Heeding {
 public:
  Heeding(Queues& queues, std::function<void()> look) : queues_(queues) { queues_.heed(std::move(look)); }
  ~Heeding() { queues_.heed(nullptr); }
  Heeding(const Heeding&) = delete;
  Heeding& operator=(const Heeding&) = delete;

 private:
  Queues& queues_;
};

// Keeps what init makes while kernels are prepared.
std::unique_ptr<bind::Binding> bound(RankState& rank, const std::shared_ptr<const RankPrograms>& programs,
                                     const Symbols& symbols, const bind::Options& options) {
  const auto loading = rank.weights().initialize(*programs);
  return bind::bind(std::make_shared<RankOfPrograms>(rank, programs), programs->of(rank.rank()), symbols, options);
}

}  // namespace

RankPlan::RankPlan(RankState& rank, std::shared_ptr<const RankPrograms> programs, const Symbols& symbols,
                   const bind::Options& options)
    : rank_(rank),
      programs_(std::move(programs)),
      binding_(bound(rank, programs_, symbols, options)),
      names_(std::make_shared<StepNames>()) {}

RankPlan::RankPlan(const RankPlan& like, std::unique_ptr<bind::Binding> binding)
    : rank_(like.rank_), programs_(like.programs_), binding_(std::move(binding)), names_(like.names_) {}

std::unique_ptr<RankPlan> RankPlan::rebound(const RankPlan& like, const Symbols& symbols) {
  auto binding = bind::rebound(*like.binding_, symbols);
  return binding ? std::unique_ptr<RankPlan>(new RankPlan(like, std::move(binding))) : nullptr;
}

std::byte* RankPlan::resolve(const Location& place) const {
  switch (place.where) {
    case Location::Where::none:
      return nullptr;
    case Location::Where::arena:
      return arena_ + offsets_[place.index] + place.skip;
    case Location::Where::fixed:
      return static_cast<std::byte*>(const_cast<void*>(place.address)) + place.skip;
    case Location::Where::input:
      return static_cast<std::byte*>(const_cast<void*>(inputs_[place.index])) + place.skip;
    case Location::Where::output:
      return static_cast<std::byte*>(outputs_[place.index]) + place.skip;
    case Location::Where::state:
      return machine().slots[place.index]->current.get() + place.skip;
    case Location::Where::next:
      return machine().slots[place.index]->spare.get() + place.skip;
  }
  return nullptr;
}

bool RankPlan::run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, RankTimes* times,
                   const RunLimits& limits, StopPoint* stop) {
  const bind::MachineProgram& machine = this->machine();
  const std::vector<bind::Enqueued>& actions = *machine.actions;
  if (times) {
    times->steps = machine.infos;
    times->done.clear();
    times->begin = RankTimes::Clock::now();
  }
  inputs_ = inputs;
  outputs_ = outputs;
  limits_ = limits;
  stop_ = stop;
  const Heeding heeding(rank_.queues(), [this] { heed_limits(); });
  begun_ = 0;
  under_way_.clear();
  offsets_ = machine.offsets;
  arena_ = rank_.memory().arena(machine.arena_bytes);
  staging_ = rank_.memory().staging(machine.staging_bytes);
  if (names_->of_action.size() < actions.size()) write_step_names();
  rank_.communicators().forget_under_way();
  events_.assign(rank_.device().is_asynchronous() ? actions.size() : 0, nullptr);

  device::Queue& compute = rank_.queues().compute();
  compute.discard(arena_, machine.arena_bytes);
  for (const bind::HostCopy& copy : machine.inputs) bring_in(copy);
  if (times) compute.note_time(times->inputs);
  // A communication before all steps needs the inputs and the arena.
  queues_.clear();
  for (const std::string& name : machine.queues) queues_.push_back(&rank_.queues().of(name));
  follow_compute();
  const bool ended = act_all(times);
  compute.note(nullptr);
  if (!ended) {
    limits_ = {};
    return false;
  }
  if (!leaves_outputs_)
    for (const bind::HostCopy& copy : machine.outputs) bring_out(copy, outputs[copy.port]);
  for (const bind::Exchange& exchange : machine.exchanges) {
    StateSlot& slot = *machine.slots[exchange.slot];
    if (exchange.copied) compute.copy(slot.spare.get(), resolve(exchange.from), slot.bytes, device::Direction::within);
  }
  rank_.queues().finish();
  limits_ = {};
  for (const bind::HostCopy& copy : machine.outputs)
    if (copy.staged) copy_to_whole(outputs[copy.port], staging_ + copy.staging, copy.box, copy.element);
  if (times) times->outputs = RankTimes::Clock::now();
  return true;
}

void RankPlan::leave_outputs() {
  leaves_outputs_ = rank_.device().uses_host_memory();
}

const void* RankPlan::own_part(size_t port) const {
  if (leaves_outputs_)
    for (const bind::HostCopy& copy : machine().outputs)
      if (copy.port == port) return resolve(copy.place);
  return nullptr;
}

bool RankPlan::may_stop_together() const {
  const auto writes_state = [](const auto& step) { return step->writes_state; };
  return !rank_.device().is_asynchronous() &&
         std::none_of(machine().steps.begin(), machine().steps.end(), writes_state);
}

bool RankPlan::act_all(RankTimes* times) {
  if (!machine().controls.empty()) return follow_controls(times);
  for (size_t a = 0; a < machine().actions->size(); ++a)
    if (!act(a, times)) return false;
  return true;
}

// States that are being written would be torn.
void RankPlan::heed_limits() const {
  if (!rank_.states().is_writing) limits_.require_going_on();
}

// Ends what the rank has begun if it stops.
bool RankPlan::stops_before(const bind::Enqueued& enqueued) {
  if (!stop_) {
    heed_limits();
    return false;
  }
  const bool begins = enqueued.action.phase == Phase::start;
  if (!stop_->stops(begun_, begins, limits_)) {
    begun_ += begins;
    return false;
  }
  for (size_t task : under_way_) {
    bind::Step& step = *machine().steps[task];
    const KernelArgs args{step.in, step.out, step.scratch < 0 ? nullptr : arena_ + offsets_[step.scratch]};
    step.communication->wait(rank_.queues().compute(), args);
  }
  rank_.communicators().forget_under_way();
  return true;
}

// False: the run stops before the action.
bool RankPlan::act(size_t action, RankTimes* times) {
  const bind::Enqueued& enqueued = (*machine().actions)[action];
  if (stops_before(enqueued)) return false;
  device::Queue& queue = *queues_[static_cast<size_t>(enqueued.queue)];
  queue.note(names_->of_action[action]);
  if (enqueued.after >= 0 && events_[enqueued.after]) queue.wait(events_[enqueued.after]);
  enqueue(enqueued, queue);
  if (enqueued.signals) events_[action] = queue.record();
  // Times of communications show at their waits.
  if (times) {
    const bind::Cost& cost = machine().steps[enqueued.action.task]->cost;
    RankTimes::Done& done = times->done.emplace_back(RankTimes::Done{action, {}, std::max(cost.received, cost.sent)});
    rank_.queues().compute().note_time(done.end);
  }
  return true;
}

// The host decides where to go on, so that it waits for what decides.
bool RankPlan::follow_controls(RankTimes* times) {
  using Kind = bind::Control::Kind;
  struct Loop {
    int64_t iteration = 0, trips = 0;
    bool again = true;
  };
  const bind::MachineProgram& machine = this->machine();
  std::vector<Loop> loops(machine.loops.size());
  const auto has_another = [](const Loop& loop) { return loop.again && loop.iteration < loop.trips; };
  const auto begin_iteration = [&](int index) {
    const int64_t number = loops[index].iteration;
    rank_.queues().compute().set(resolve(machine.loops[index].iteration), &number, sizeof number);
  };
  for (int at = 0; at < static_cast<int>(machine.controls.size()); ++at) {
    const bind::Control& control = machine.controls[at];
    switch (control.kind) {
      case Kind::act:
        if (!act(static_cast<size_t>(control.index), times)) return false;
        break;
      case Kind::open: {
        const bind::LoopPlan& plan = machine.loops[control.index];
        const bool has_limit = plan.trips.where != Location::Where::none;
        loops[control.index] = {0, has_limit ? read<int64_t>(plan.trips) : std::numeric_limits<int64_t>::max(),
                                plan.condition.where == Location::Where::none || read<bool>(plan.condition)};
        break;
      }
      case Kind::test:
        join_queues();
        if (has_another(loops[control.index]))
          begin_iteration(control.index);
        else
          at = control.target - 1;
        break;
      case Kind::ask:
        if (const Location& place = machine.loops[control.index].again; place.where != Location::Where::none)
          loops[control.index].again = read<bool>(place);
        break;
      case Kind::back: {
        join_queues();
        ++loops[control.index].iteration;
        for (const auto& [now, next] : machine.loops[control.index].exchanged) std::swap(offsets_[now], offsets_[next]);
        if (!has_another(loops[control.index])) break;
        begin_iteration(control.index);
        at = control.target - 1;
        break;
      }
      case Kind::branch:
        join_queues();
        if (read<bool>(machine.branches[control.index].condition) != machine.branches[control.index].taken)
          at = control.target - 1;
        break;
    }
  }
  return true;
}

// Later work on any queue begins after all work enqueued so far on all of them.
void RankPlan::join_queues() {
  device::Queue& compute = *queues_[bind::kComputing];
  for (device::Queue* queue : queues_)
    if (queue != &compute) compute.wait(queue->record());
  follow_compute();
}

// Later work on other queues begins after all that is enqueued on the computing one.
void RankPlan::follow_compute() {
  if (queues_.size() < 2) return;
  device::Queue& compute = *queues_[bind::kComputing];
  const auto computed = compute.record();
  for (device::Queue* queue : queues_)
    if (queue != &compute) queue->wait(computed);
}

template <typename T>
T RankPlan::read(const Location& place) {
  T value{};
  rank_.memory().read(resolve(place), sizeof value,
                      [&](const void* bytes) { std::memcpy(&value, bytes, sizeof value); });
  return value;
}

void RankPlan::enqueue(const bind::Enqueued& enqueued, device::Queue& queue) {
  bind::Step& step = *machine().steps[enqueued.action.task];
  const Phase phase = enqueued.action.phase;
  if (phase != Phase::wait) {
    for (size_t i = 0; i < step.inputs.size(); ++i) step.in[i] = resolve(step.inputs[i]);
    for (size_t i = 0; i < step.outputs.size(); ++i) step.out[i] = resolve(step.outputs[i]);
  }
  const KernelArgs args{step.in, step.out, step.scratch < 0 ? nullptr : arena_ + offsets_[step.scratch]};
  bind::Communication* communication = step.communication.get();
  if (phase == Phase::run) {
    const auto noted = [this](const KernelArgs&) { rank_.states().is_writing = true; };
    if (step.writes_state) queue.call(noted, {});
    if (takes_long(step.cost, rank_.threads()) && !rank_.device().is_asynchronous())
      rank_.communicators().advance_beside([&] { queue.run(*step.kernel, args); });
    else
      queue.run(*step.kernel, args);
    rank_.communicators().advance();
  } else if (enqueued.queue != bind::kComputing) {
    communication->start(queue, args);
    communication->wait(queue, args);
  } else if (phase == Phase::start) {
    communication->start(queue, args);
    rank_.communicators().note_start(communication);
    under_way_.push_back(enqueued.action.task);
  } else if (!rank_.device().is_asynchronous()) {  // else the queue waits for the event
    communication->wait(queue, args);
    rank_.communicators().note_end(communication);
    std::erase(under_way_, static_cast<size_t>(enqueued.action.task));
  }
}

void RankPlan::bring_in(const bind::HostCopy& copy) {
  std::byte* to = resolve(copy.place);
  const auto* whole = static_cast<const std::byte*>(inputs_[copy.port]);
  if (rank_.device().uses_host_memory()) {
    copy_from_whole(to, whole, copy.box, copy.element);
    return;
  }
  const std::byte* from = whole;
  if (copy.staged) {
    copy_from_whole(staging_ + copy.staging, whole, copy.box, copy.element);
    from = staging_ + copy.staging;
  } else if (copy.bytes > 0) {
    from += static_cast<size_t>(copy.box.first()) * copy.element;
  }
  rank_.queues().compute().copy(to, from, copy.bytes, device::Direction::to_device);
}

// Staged parts are copied to the whole after the run.
void RankPlan::bring_out(const bind::HostCopy& copy, void* whole) {
  const std::byte* from = resolve(copy.place);
  if (rank_.device().uses_host_memory()) {
    copy_to_whole(whole, from, copy.box, copy.element);
    return;
  }
  std::byte* to = staging_ + copy.staging;
  if (!copy.staged)
    to = static_cast<std::byte*>(whole) + (copy.bytes > 0 ? static_cast<size_t>(copy.box.first()) * copy.element : 0);
  rank_.queues().compute().copy(to, from, copy.bytes, device::Direction::to_host);
}

void RankPlan::commit() {
  for (const bind::Exchange& exchange : machine().exchanges) {
    StateSlot& slot = *machine().slots[exchange.slot];
    std::swap(slot.current, slot.spare);
  }
  rank_.states().is_writing = false;
}

void RankPlan::write_step_names() {
  std::string all;
  std::vector<size_t> starts;
  for (const bind::StepInfo& info : *machine().infos) {
    starts.push_back(all.size());
    all += info.op + " '" + info.name + "'";
    all += '\0';
  }
  names_->memory = rank_.communicators().shared_memory(all.size() + 1, "names");
  std::memcpy(names_->memory.get(), all.data(), all.size());
  for (size_t start : starts) names_->of_action.push_back(reinterpret_cast<const char*>(names_->memory.get()) + start);
}

size_t RankPlan::bytes() const {
  // Measured: 10 to 15 KiB in transformers, and up to 40 where most steps are the library's convolutions.
  constexpr size_t kOfStep = size_t{12} << 10;
  return machine().steps.size() * kOfStep;
}

void RankPlan::store(const Value* value, void* whole) {
  if (!binding_->writes(value)) return;
  const CopiedBox copied(binding_->box(value), value->dtype());
  rank_.memory().read(resolve(binding_->location_of(value)), static_cast<size_t>(copied.box.count()) * copied.unit,
                      [&](const void* part) { copy_to_whole(whole, part, copied); });
}

}  // namespace tessera::runtime

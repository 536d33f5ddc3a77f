#include "tessera/whatif/programs.h"

#include "tessera/bind/order.h"

namespace tessera::whatif {
namespace {

using bind::Action;
using bind::Phase;

// The actions that run, without loops and branches around them.
std::vector<Action> flat_actions(const bind::MachineProgram& machine) {
  std::vector<Action> actions;
  for (int at : sim::running_order(machine)) actions.push_back((*machine.actions)[static_cast<size_t>(at)].action);
  return actions;
}

// By step.
std::vector<int> queues_of(const bind::MachineProgram& machine) {
  std::vector<int> queues(machine.steps.size(), bind::kComputing);
  for (const bind::Enqueued& it : *machine.actions)
    if (it.action.phase != Phase::wait) queues[static_cast<size_t>(it.action.task)] = it.queue;
  return queues;
}

void set_actions(bind::MachineProgram& machine, const std::vector<Action>& actions, const std::vector<int>& queues) {
  const std::vector<bind::Span> spans = bind::spans_of(actions, machine.steps.size());
  auto infos = std::make_shared<std::vector<bind::StepInfo>>();
  for (const Action& action : actions) {
    const auto task = static_cast<size_t>(action.task);
    infos->push_back(machine.steps[task]->info);
    if (action.phase == Phase::wait) infos->back().started = spans[task].begin;
  }
  machine.infos = std::move(infos);
  machine.actions = std::make_shared<const std::vector<bind::Enqueued>>(bind::on_queues(actions, spans, queues));
  machine.controls.clear();
}

// A program that grows step by step, each with its place in the program's order.
struct Growing {
  const sim::ClassProgram& from;
  std::shared_ptr<bind::MachineProgram> machine = std::make_shared<bind::MachineProgram>(*from.machine);
  std::vector<std::vector<int>> needs;
  std::vector<double> seconds;
  std::vector<sim::Transfer> transfers;
  std::vector<int> queues;

  explicit Growing(const sim::ClassProgram& program) : from(program) { machine->steps.clear(); }

  int add(std::shared_ptr<bind::Step> step, std::vector<int> needed, double time, sim::Transfer transfer,
          int queue = bind::kComputing) {
    machine->steps.push_back(std::move(step));
    needs.push_back(std::move(needed));
    seconds.push_back(time);
    transfers.push_back(std::move(transfer));
    queues.push_back(queue);
    return static_cast<int>(needs.size()) - 1;
  }
  int add(const Insertion& insertion, std::vector<int> needed) {
    auto step = std::make_shared<bind::Step>();
    step->info.op = insertion.op;
    step->info.name = insertion.name;
    return add(std::move(step), std::move(needed), insertion.seconds, {});
  }
  sim::ClassProgram done(const std::vector<Action>& actions) {
    machine->needs = std::make_shared<const std::vector<std::vector<int>>>(std::move(needs));
    set_actions(*machine, actions, queues);
    sim::ClassProgram made = from;
    made.machine = std::move(machine);
    made.seconds = std::move(seconds);
    made.transfers = std::move(transfers);
    return made;
  }
};

}  // namespace

sim::ClassProgram with_insertions(const sim::ClassProgram& program, const std::vector<Insertion>& insertions) {
  if (insertions.empty()) return program;
  const bind::MachineProgram& old = *program.machine;
  std::vector<std::vector<const Insertion*>> before(old.steps.size()), after(old.steps.size());
  for (const Insertion& each : insertions)
    (each.after ? after : before)[static_cast<size_t>(each.step)].push_back(&each);

  Growing growing(program);
  const std::vector<int> queues = queues_of(old);
  std::vector<std::vector<int>> led(old.steps.size()), followed(old.steps.size());  // new steps before and after each
  std::vector<int> place, last;  // of each old step: its new number, and that of what it ends with
  for (size_t s = 0; s < old.steps.size(); ++s) {
    std::vector<int> needs;
    for (int need : (*old.needs)[s]) needs.push_back(last[static_cast<size_t>(need)]);
    for (const Insertion* each : before[s]) {
      led[s].push_back(growing.add(*each, std::move(needs)));
      needs = {led[s].back()};
    }
    place.push_back(growing.add(old.steps[s], std::move(needs), program.seconds[s], program.transfers[s], queues[s]));
    last.push_back(place.back());
    for (const Insertion* each : after[s]) {
      followed[s].push_back(growing.add(*each, {last.back()}));
      last.back() = followed[s].back();
    }
  }
  std::vector<Action> actions;
  for (const Action& action : flat_actions(old)) {
    const auto s = static_cast<size_t>(action.task);
    if (action.phase != Phase::wait)
      for (int step : led[s]) actions.push_back({step, Phase::run});
    actions.push_back({place[s], action.phase});
    if (action.phase != Phase::start)
      for (int step : followed[s]) actions.push_back({step, Phase::run});
  }
  return growing.done(actions);
}

sim::ClassProgram without_overlap(const sim::ClassProgram& program) {
  std::vector<Action> actions;
  std::vector<bool> runs(program.machine->steps.size());
  for (const Action& action : flat_actions(*program.machine)) runs[static_cast<size_t>(action.task)] = true;
  for (size_t s = 0; s < runs.size(); ++s) {
    if (!runs[s]) continue;
    const auto task = static_cast<int>(s);
    if (!program.machine->steps[s]->info.communication) {
      actions.push_back({task, Phase::run});
      continue;
    }
    actions.push_back({task, Phase::start});
    actions.push_back({task, Phase::wait});
  }
  auto machine = std::make_shared<bind::MachineProgram>(*program.machine);
  set_actions(*machine, actions, queues_of(*program.machine));
  sim::ClassProgram made = program;
  made.machine = std::move(machine);
  return made;
}

void drop_communication(sim::ClassProgram& program, size_t step) {
  auto machine = std::make_shared<bind::MachineProgram>(*program.machine);
  auto changed = std::make_shared<bind::Step>(*machine->steps[step]);
  changed->info.axes.clear();
  changed->info.members = 1;
  changed->info.from = changed->info.to = -1;
  machine->steps[step] = std::move(changed);
  program.machine = std::move(machine);
  program.transfers[step] = {};
}

}  // namespace tessera::whatif

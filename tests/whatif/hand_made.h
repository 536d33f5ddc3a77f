#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tessera/bind/order.h"
#include "tessera/whatif/trace.h"
#include "tessera/whatif/transfers.h"

/// Recorded programs and runs that are written down by hand.
namespace tessera::whatif {

constexpr double kMilli = 1e-3;

/// A step of a program: a kernel or, with bytes, an all-reduce over an axis of two ranks.
struct HandStep {
  HandStep(size_t bytes, std::string axis = "tp") : bytes(bytes), axis(std::move(axis)) {}

  size_t bytes;
  std::string axis;
};

/// The same program on all ranks, in the order of its actions. Steps are named a, b, c, …. With one axis it runs over
/// Gloo; with several, on a device that has a queue for each.
struct HandMade {
  Recording recording;

  HandMade(const std::vector<HandStep>& steps, const std::vector<bind::Action>& actions) {
    auto machine = std::make_shared<bind::MachineProgram>();
    auto works = std::make_shared<std::vector<bind::StepWork>>(steps.size());
    auto needs = std::make_shared<std::vector<std::vector<int>>>(steps.size());
    std::vector<std::string> axes;
    std::vector<int> queues(steps.size(), bind::kComputing);
    for (size_t s = 0; s < steps.size(); ++s) {
      machine->steps.push_back(step_of(steps[s], s));
      if (steps[s].bytes == 0) continue;
      const auto axis = std::find(axes.begin(), axes.end(), steps[s].axis);
      queues[s] = static_cast<int>(axis - axes.begin()) + 1;
      if (axis == axes.end()) axes.push_back(steps[s].axis);
    }
    const bool has_queues = axes.size() > 1;
    for (size_t s = 1; s < steps.size() && !has_queues; ++s)
      if (steps[s].bytes > 0) (*needs)[s] = {static_cast<int>(s) - 1};
    if (has_queues)
      machine->queues.insert(machine->queues.end(), axes.begin(), axes.end());
    else
      queues.assign(steps.size(), bind::kComputing);
    machine->needs = needs;
    set_actions(*machine, actions, queues);
    recording.mesh = Mesh::parse(has_queues ? fmt::format("{}=2", fmt::join(axes, "=2,")) : "tp=2");
    recording.engine = has_queues ? "threads" : "gloo";
    recording.device = has_queues ? "simulated" : "cpu";
    recording.ranks.assign(static_cast<size_t>(recording.mesh.size()), {machine, works});
  }

 private:
  static std::shared_ptr<bind::Step> step_of(const HandStep& from, size_t number) {
    auto step = std::make_shared<bind::Step>();
    step->info.op = from.bytes > 0 ? "AllReduce" : "MatMul";
    step->info.name = std::string(1, static_cast<char>('a' + number));
    if (from.bytes > 0) {
      step->info.communication = true;
      step->info.axes = {from.axis};
      step->info.members = 2;
    }
    step->cost.read = step->cost.written = from.bytes;
    return step;
  }
  static void set_actions(bind::MachineProgram& machine, const std::vector<bind::Action>& actions,
                          const std::vector<int>& queues) {
    const std::vector<bind::Span> spans = bind::spans_of(actions, machine.steps.size());
    auto infos = std::make_shared<std::vector<bind::StepInfo>>();
    for (const bind::Action& action : actions) {
      infos->push_back(machine.steps[static_cast<size_t>(action.task)]->info);
      if (action.phase == bind::Phase::wait) infos->back().started = spans[static_cast<size_t>(action.task)].begin;
    }
    machine.infos = infos;
    machine.actions = std::make_shared<const std::vector<bind::Enqueued>>(bind::on_queues(actions, spans, queues));
  }
};

/// When all ranks had started it, and its wait, in milliseconds.
struct Wait {
  int action;
  double complete, begin, end;
};

inline RecordedRun run_of_waits(const std::vector<std::vector<Wait>>& ranks) {
  RecordedRun run;
  for (const std::vector<Wait>& waits : ranks) {
    RecordedRun::Rank& rank = run.ranks.emplace_back();
    for (const Wait& each : waits)
      rank.events.push_back({each.action, each.begin * kMilli, each.end * kMilli, each.complete * kMilli});
    rank.end = rank.events.back().end;
    run.seconds = std::max(run.seconds, rank.end);
  }
  return run;
}

inline std::vector<double> milliseconds(const std::vector<Moved>& all, size_t rank) {
  std::vector<double> found;
  for (const Moved& moved : all)
    if (moved.rank == rank) found.push_back(moved.seconds / kMilli);
  return found;
}

}  // namespace tessera::whatif

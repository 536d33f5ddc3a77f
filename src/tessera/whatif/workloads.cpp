#include "tessera/whatif/workloads.h"

#include <algorithm>
#include <limits>
#include <map>

#include "tessera/base/error.h"
#include "tessera/cost/links.h"
#include "tessera/ir/collective.h"
#include "tessera/mesh/group.h"
#include "tessera/sim/transfer.h"
#include "tessera/whatif/programs.h"
#include "tessera/whatif/statistics.h"

namespace tessera::whatif {
namespace {

using bind::Phase;

// A wait that is shorter has found its communication at its end.
constexpr double kShortest = 30e-6;

// What a rank's communication took, in one execution.
struct Moved {
  size_t rank = 0, step = 0;
  double seconds = 0;
  bool hidden = false;  // its end was not seen, and the seconds are the most that it can have taken
};

const bind::Action& action_of(const sim::ClassWork& rank, const RecordedEvent& event) {
  return (*rank.machine->actions)[static_cast<size_t>(event.action)].action;
}

std::vector<Moved> transfers_of(const Recording& recording, const RecordedRun& run, bool alone) {
  const bool in_background = recording.moves_in_background();
  const bool in_turn = alone || recording.is_asynchronous();  // its queue does one after the other
  std::vector<Moved> all;
  for (size_t r = 0; r < run.ranks.size(); ++r) {
    double ended = 0;  // of an earlier transfer
    for (const RecordedEvent& event : run.ranks[r].events) {
      const bind::Action& action = action_of(recording.ranks[r], event);
      if (action.phase != Phase::wait) continue;
      Moved moved{r, static_cast<size_t>(action.task)};
      const double seen = event.end - std::max(event.begin, event.complete);
      if (!in_background) {
        moved.seconds = std::max(0.0, seen);
      } else if (seen < kShortest && event.complete < event.begin) {
        moved.hidden = true;
        moved.seconds = event.begin - event.complete;
      } else {
        const double begin = in_turn ? std::clamp(ended, event.complete, event.end) : event.complete;
        moved.seconds = std::max(0.0, event.end - begin);
        ended = event.end;
      }
      all.push_back(moved);
    }
  }
  return all;
}

using Kind = std::pair<std::string, std::vector<std::string>>;  // operator and axes

const bind::Step& step_of(const Recording& recording, const Moved& moved) {
  return *recording.ranks[moved.rank].machine->steps[moved.step];
}

Kind kind_of(const bind::Step& step) {
  return {step.info.op, step.info.axes};
}

// On the links that the trace describes; infinite if it describes none of these.
double modelled_seconds(const Recording& recording, const bind::Step& step) {
  static const MachineModel unmeasured;
  static const std::vector<int> no_classes;
  if (cost::levels_of(parse_axes(step.info.axes, recording.mesh), recording.mesh, recording.topology).empty())
    return std::numeric_limits<double>::infinity();
  return sim::transfer_of(step, {recording.mesh, recording.topology, unmeasured, no_classes, recording.engine}).seconds;
}

// Those that were not seen to end take what their kind takes elsewhere, and at most what their links say.
void estimate_hidden(const Recording& recording, std::vector<Moved>& all) {
  std::map<Kind, std::vector<std::pair<double, double>>> seen;
  for (const Moved& moved : all)
    if (const bind::Step& step = step_of(recording, moved); !moved.hidden && moved.seconds > 0)
      seen[kind_of(step)].emplace_back(sim::moved_bytes(step), moved.seconds);
  std::map<Kind, Line> lines;
  for (const auto& [kind, points] : seen) lines[kind] = line_through(points);
  for (Moved& moved : all) {
    if (!moved.hidden) continue;
    const bind::Step& step = step_of(recording, moved);
    moved.seconds = std::min(moved.seconds, modelled_seconds(recording, step));
    if (const auto line = lines.find(kind_of(step)); line != lines.end())
      moved.seconds = std::min(moved.seconds, line->second.at(sim::moved_bytes(step)));
  }
}

sim::ClassProgram program_of(const Recording& recording, const RecordedRun& run, size_t r) {
  const sim::ClassWork& work = recording.ranks[r];
  const RecordedRun::Rank& times = run.ranks[r];
  const size_t count = work.machine->steps.size();
  sim::ClassProgram program;
  program.machine = work.machine;
  program.rank = static_cast<int>(r);
  program.seconds.assign(count, 0);
  program.transfers.resize(count);
  for (size_t s = 0; s < count; ++s) {
    const bind::Step& step = *work.machine->steps[s];
    if (!step.info.communication) continue;
    program.transfers[s].bytes = sim::moved_bytes(step);
    program.transfers[s].levels = recording.links_of(step);
  }
  program.before = times.events.empty() ? times.end : std::max(0.0, times.events.front().begin);
  program.after = times.events.empty() ? 0 : std::max(0.0, times.end - times.events.back().end);
  for (const RecordedEvent& event : times.events)
    if (const bind::Action& action = action_of(work, event); action.phase == Phase::run)
      program.seconds[static_cast<size_t>(action.task)] += event.end - event.begin;
  return program;
}

// What it takes the computing queue to start a communication is work of its own, before it and of the same name.
std::vector<Insertion> starts_of(const Recording& recording, const RecordedRun& run, size_t r) {
  std::map<int, double> seconds;
  for (const RecordedEvent& event : run.ranks[r].events)
    if (const bind::Action& action = action_of(recording.ranks[r], event); action.phase == Phase::start)
      seconds[action.task] += event.end - event.begin;
  std::vector<Insertion> insertions;
  for (const auto& [step, time] : seconds) {
    const bind::StepInfo& info = recording.ranks[r].machine->steps[static_cast<size_t>(step)]->info;
    insertions.push_back({step, false, info.op, info.name, time});
  }
  return insertions;
}

// Bytes that a rank reads and writes in a second while it takes its inputs and stores its outputs.
double copied_per_second(const RecordedTrace& trace) {
  const RecordedRun& run = trace.runs[trace.median_run()];
  double bytes = 0, seconds = 0;
  for (size_t r = 0; r < run.ranks.size(); ++r) {
    const bind::MachineProgram& machine = *trace.recording.ranks[r].machine;
    for (const auto* copies : {&machine.inputs, &machine.outputs})
      for (const bind::HostCopy& copy : *copies) bytes += 2.0 * static_cast<double>(copy.bytes);
    const sim::ClassProgram program = program_of(trace.recording, run, r);
    seconds += program.before + program.after;
  }
  return bytes > 0 && seconds > 0 ? bytes / seconds : std::numeric_limits<double>::infinity();
}

}  // namespace

sim::Workload replayed(const Recording& recording, const RecordedRun& run, bool alone) {
  sim::Workload workload;
  workload.ranks = sim::single_ranks(static_cast<int64_t>(run.ranks.size()));
  workload.conditions = recording.conditions;
  workload.steps.resize(run.ranks.size());
  for (size_t r = 0; r < run.ranks.size(); ++r) workload.programs.push_back(program_of(recording, run, r));
  std::vector<Moved> all = transfers_of(recording, run, alone);
  estimate_hidden(recording, all);
  for (const Moved& moved : all) workload.programs[moved.rank].transfers[moved.step].seconds += moved.seconds;
  for (size_t r = 0; r < run.ranks.size(); ++r)
    workload.programs[r] =
        with_insertions(workload.programs[r], starts_of(recording, run, r), recording.is_asynchronous());
  return workload;
}

HiddenTransfers hidden_transfers(const Recording& recording, const RecordedRun& run) {
  HiddenTransfers count;
  for (const Moved& moved : transfers_of(recording, run, false)) {
    ++count.all;
    count.hidden += moved.hidden;
  }
  return count;
}

MachineModel bare_machine(const RecordedTrace& trace) {
  MachineModel machine;
  machine.name = "the machine of the trace";
  machine.source = trace.source;
  machine.device = trace.recording.device;
  machine.cores = trace.recording.is_asynchronous() ? 0 : trace.recording.cores;
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), copied_per_second(trace)}};
  machine.progress =
      trace.recording.moves_in_background() ? MachineModel::Progress::background : MachineModel::Progress::at_wait;
  return machine;
}

void learn(MachineModel& machine, const RecordedTrace& trace, const sim::RunConditions& conditions, int64_t ranks) {
  const Recording& recording = trace.recording;
  const std::string suffix = sim::condition_of(conditions, ranks, machine.cores);
  // Ranks that had more threads than the machine has cores waited for each other.
  const int64_t beside = recording.conditions.machine_ranks > 0 ? recording.conditions.machine_ranks
                                                                : static_cast<int64_t>(recording.ranks.size());
  const double share =
      recording.is_asynchronous() || recording.cores <= 0
          ? 1
          : std::min(1.0, recording.cores / static_cast<double>(beside * recording.conditions.threads));
  std::map<std::string, std::vector<double>> kernels;
  std::map<std::pair<std::string, int64_t>, std::map<double, std::vector<double>>> collectives;
  for (const RecordedRun& run : trace.runs) {
    for (size_t r = 0; r < run.ranks.size(); ++r) {
      const sim::ClassWork& work = recording.ranks[r];
      for (const RecordedEvent& event : run.ranks[r].events)
        if (const bind::Action& action = action_of(work, event); action.phase == Phase::run) {
          const bind::StepWork& step = (*work.works)[static_cast<size_t>(action.task)];
          const std::string signature = step.signature + suffix;
          kernels[signature].push_back((event.end - event.begin) * share);
          machine.kernels[signature] = {0, 0, step.flops, step.bytes};
        }
    }
    std::vector<Moved> all = transfers_of(recording, run, true);
    estimate_hidden(recording, all);
    for (const Moved& moved : all)
      if (const bind::Step& step = step_of(recording, moved); step.info.members > 1)
        collectives[{std::string(traits_of(*collective_of_op(step.info.op)).name), step.info.members}]
                   [sim::moved_bytes(step)]
                       .push_back(moved.seconds);
  }
  for (auto& [signature, times] : kernels) machine.kernels[signature].seconds = median(times);
  for (auto& [kind, points] : collectives) {
    MachineModel::Collective found{
        recording.engine, kind.first, kind.second, static_cast<int64_t>(recording.ranks.size()), {}};
    for (auto& [bytes, times] : points) found.points.emplace_back(bytes, median(times));
    machine.collectives.insert(machine.collectives.begin(), std::move(found));  // before what the machine has
  }
}

}  // namespace tessera::whatif

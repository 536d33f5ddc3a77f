#include "tessera/whatif/workloads.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "tessera/base/error.h"
#include "tessera/cost/kernels.h"
#include "tessera/ir/collective.h"
#include "tessera/sim/transfer.h"
#include "tessera/whatif/programs.h"
#include "tessera/whatif/statistics.h"
#include "tessera/whatif/transfers.h"

namespace tessera::whatif {
namespace {

using bind::Phase;

const bind::Action& action_of(const sim::ClassWork& rank, const RecordedEvent& event) {
  return (*rank.machine->actions)[static_cast<size_t>(event.action)].action;
}

// Calls `what` for each kernel of a rank, and whether communications were under way beside it.
void on_kernels(const sim::ClassWork& work, const RecordedRun::Rank& times,
                const std::function<void(size_t step, double seconds, bool beside)>& what) {
  std::set<int> under_way;
  for (const RecordedEvent& event : times.events) {
    const bind::Action& action = action_of(work, event);
    if (action.phase == Phase::start) under_way.insert(action.task);
    if (action.phase == Phase::wait) under_way.erase(action.task);
    if (action.phase == Phase::run) what(static_cast<size_t>(action.task), event.end - event.begin, !under_way.empty());
  }
}

sim::ClassProgram program_of(const Recording& recording, const RecordedRun& run, size_t r,
                             const Undisturbed* undisturbed = nullptr) {
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
  on_kernels(work, times, [&](size_t step, double seconds, bool beside) {
    program.seconds[step] += beside && undisturbed ? undisturbed->seconds_of((*work.works)[step].signature) : seconds;
  });
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

std::map<DType, MachineModel::Product> product_rates(const RecordedTrace& trace) {
  constexpr double kHalfAsWide = 2;  // times the rate
  const RecordedRun& run = trace.runs[trace.median_run()];
  std::map<DType, double> flops, seconds;
  for (size_t r = 0; r < run.ranks.size(); ++r)
    for (const RecordedEvent& event : run.ranks[r].events) {
      const bind::Action& action = action_of(trace.recording.ranks[r], event);
      const bind::StepWork& work = (*trace.recording.ranks[r].works)[static_cast<size_t>(action.task)];
      if (action.phase != Phase::run || work.depth == 0) continue;
      flops[work.dtype] += work.flops;
      seconds[work.dtype] += event.end - event.begin;
    }
  std::map<DType, MachineModel::Product> rates;
  for (const auto& [dtype, sum] : flops)
    if (seconds[dtype] > 0) rates[dtype] = {sum / seconds[dtype]};
  for (DType half : {DType::bfloat16, DType::float16}) {
    if (const auto full = rates.find(DType::float32); full != rates.end())
      rates.try_emplace(half, MachineModel::Product{full->second.flops * kHalfAsWide});
    else if (const auto known = rates.find(half); known != rates.end())
      rates[DType::float32] = {known->second.flops / kHalfAsWide};
  }
  return rates;
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

// Seconds in which a bucket copies so many bytes into its memory, or out of it.
double bucket_copy(const cost::KernelTimes& times, size_t bytes, int64_t at_once) {
  return times.copy(2.0 * static_cast<double>(bytes) * static_cast<double>(at_once));
}

// Larger ones, by the line through all: that through the last two points would be as exact as these two.
void add_larger(std::vector<std::pair<double, double>>& points) {
  constexpr double kTimes = 1000;
  std::vector<std::pair<double, double>> known;
  for (const auto& point : points)
    if (point.first > 0 && point.second > 0) known.push_back(point);
  if (known.size() < 2) return;
  const auto [bytes, seconds] = points.back();
  points.emplace_back(bytes * kTimes, seconds + line_through(known).slope * bytes * (kTimes - 1));
}

// The medians of those that were seen to end, by their bytes; of others where there are none.
void learn_collectives(MachineModel& machine, const RecordedTrace& trace, int64_t at_once) {
  const Recording& recording = trace.recording;
  const cost::KernelTimes times(machine);
  struct Times {
    std::vector<double> seen, hidden;
  };
  std::map<std::pair<std::string, int64_t>, std::map<double, Times>> collectives;
  for (const RecordedRun& run : trace.runs)
    for (const Moved& moved : transfers_of(recording, run)) {
      const bind::Step& step = *recording.ranks[moved.rank].machine->steps[moved.step];
      if (step.info.members == 1) continue;
      const bool joined = (*recording.ranks[moved.rank].works)[moved.step].joined;
      const double copy = joined && !recording.is_asynchronous() ? bucket_copy(times, step.cost.written, at_once) : 0;
      const std::string kind(traits_of(*collective_of_op(step.info.op)).name);
      Times& found = collectives[{kind, step.info.members}][sim::moved_bytes(step)];
      (moved.hidden ? found.hidden : found.seen).push_back(std::max(0.0, moved.seconds - copy));
    }
  for (auto& [kind, points] : collectives) {
    MachineModel::Collective found{
        recording.engine, kind.first, kind.second, static_cast<int64_t>(recording.ranks.size()), {}};
    for (auto& [bytes, of] : points) found.points.emplace_back(bytes, median(of.seen.empty() ? of.hidden : of.seen));
    add_larger(found.points);
    machine.collectives.insert(machine.collectives.begin(), std::move(found));  // before what the machine has
  }
}

}  // namespace

Undisturbed::Undisturbed(const RecordedTrace& trace) {
  for (const RecordedRun& run : trace.runs)
    for (size_t r = 0; r < run.ranks.size(); ++r) {
      const sim::ClassWork& work = trace.recording.ranks[r];
      on_kernels(work, run.ranks[r], [&](size_t step, double seconds, bool beside) {
        Times& times = kernels_[(*work.works)[step].signature];
        times.all.push_back(seconds);
        if (!beside) times.alone.push_back(seconds);
      });
    }
}

double Undisturbed::seconds_of(const std::string& signature) const {
  const Times& times = kernels_.at(signature);
  return median(times.alone.empty() ? times.all : times.alone);
}

sim::Workload replayed(const Recording& recording, const RecordedRun& run, const Undisturbed* undisturbed) {
  sim::Workload workload;
  workload.ranks = sim::single_ranks(static_cast<int64_t>(run.ranks.size()));
  workload.conditions = recording.conditions;
  workload.steps.resize(run.ranks.size());
  for (size_t r = 0; r < run.ranks.size(); ++r) workload.programs.push_back(program_of(recording, run, r, undisturbed));
  for (const Moved& moved : transfers_of(recording, run))
    workload.programs[moved.rank].transfers[moved.step].seconds += moved.seconds;
  for (size_t r = 0; r < run.ranks.size(); ++r)
    workload.programs[r] = with_insertions(workload.programs[r], starts_of(recording, run, r));
  return workload;
}

HiddenTransfers hidden_transfers(const Recording& recording, const RecordedRun& run) {
  HiddenTransfers count;
  for (const Moved& moved : transfers_of(recording, run)) {
    ++count.all;
    count.hidden += moved.hidden;
  }
  return count;
}

void add_bucket_copies(sim::Workload& workload, const std::vector<sim::ClassWork>& classes, const MachineModel& machine,
                       int64_t at_once, bool is_asynchronous) {
  if (is_asynchronous) return;
  const cost::KernelTimes times(machine);
  for (size_t c = 0; c < classes.size(); ++c) {
    std::vector<Insertion> copies;
    for (size_t s = 0; s < classes[c].works->size(); ++s) {
      const bind::StepWork& work = (*classes[c].works)[s];
      if (!work.joined) continue;
      const bind::Step& step = *classes[c].machine->steps[s];
      const auto step_number = static_cast<int>(s);
      const auto add = [&](bool after, size_t bytes, int64_t ranks) {
        copies.push_back(
            {step_number, after, step.info.op, step.info.name, bucket_copy(times, bytes, ranks) * work.runs});
      };
      add(false, step.cost.read, 1);
      add(true, step.cost.written, at_once);
    }
    workload.programs[c] = with_insertions(workload.programs[c], copies);
  }
}

MachineModel bare_machine(const RecordedTrace& trace) {
  MachineModel machine;
  machine.name = "the machine of the trace";
  machine.source = trace.source;
  machine.device = trace.recording.device;
  machine.cores = trace.recording.is_asynchronous() ? 0 : trace.recording.cores;
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), copied_per_second(trace)}};
  machine.products = product_rates(trace);
  machine.progress =
      trace.recording.moves_in_background() ? MachineModel::Progress::background : MachineModel::Progress::at_wait;
  return machine;
}

void learn(MachineModel& machine, const RecordedTrace& trace, const sim::RunConditions& conditions, int64_t ranks,
           int64_t at_once) {
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
  for (const RecordedRun& run : trace.runs)
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
  for (auto& [signature, times] : kernels) machine.kernels[signature].seconds = median(times);
  learn_collectives(machine, trace, at_once);
}

}  // namespace tessera::whatif

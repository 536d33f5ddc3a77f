#include "tessera/whatif/answer.h"

#include <algorithm>
#include <map>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/forecast/report.h"
#include "tessera/ir/collective.h"
#include "tessera/whatif/changes.h"
#include "tessera/whatif/statistics.h"
#include "tessera/whatif/workloads.h"

namespace tessera::whatif {
namespace {

using Overlap = WhatIfChanges::Overlap;
using sim::Predicted;
using sim::Workload;

// With perfect overlap, nothing but the bound is left.
double seconds_of(const Predicted& predicted, const WhatIfChanges& changes) {
  return changes.overlap == Overlap::perfect ? predicted.timeline.bound() : predicted.timeline.seconds;
}

WhatIf about(const RecordedTrace& trace) {
  WhatIf made;
  made.runs = static_cast<int64_t>(trace.runs.size());
  made.measured_ms = trace.runs[trace.median_run()].seconds * 1e3;
  const HiddenTransfers transfers = hidden_transfers(trace.recording, trace.runs[trace.median_run()]);
  made.transfers = transfers.all;
  made.hidden = transfers.hidden;
  return made;
}

Predicted repeated(Workload workload, const Recording& recording, const MachineModel& machine) {
  sim::PredictOptions options;
  options.machine = &machine;
  options.engine = recording.engine;
  return sim::simulated(std::move(workload), recording.mesh, options);
}

bool has_collective(const MachineModel& machine, const bind::StepInfo& info, const std::string& engine, int64_t ranks) {
  const std::string_view kind = traits_of(*collective_of_op(info.op)).name;
  return std::any_of(machine.collectives.begin(), machine.collectives.end(), [&](const auto& each) {
    return each.engine == engine && each.kind == kind && each.members == info.members && each.ranks == ranks;
  });
}

// Where no machine is given, all collectives must have been recorded.
void require_recorded(const std::vector<sim::ClassWork>& classes, const MachineModel& machine, const Recording& from,
                      int64_t ranks, const std::string& source) {
  int64_t missing = 0;
  std::string first;
  for (const sim::ClassWork& each : classes)
    for (size_t s = 0; s < each.works->size(); ++s) {
      const bind::StepInfo& info = each.machine->steps[s]->info;
      if (!info.communication || info.members == 1 || has_collective(machine, info, from.engine, ranks)) continue;
      ++missing;
      if (first.empty()) first = fmt::format("{} '{}'", info.op, info.name);
    }
  if (missing > 0)
    fail("whatif",
         "{} has no times for {} communications of the changed program, of which {} is the first; give `machine` to "
         "compute them",
         source, missing, first);
}

// The types that works multiply, with their FLOPs.
std::map<DType, double> products_of(const std::vector<sim::ClassWork>& classes) {
  std::map<DType, double> flops;
  for (const sim::ClassWork& each : classes)
    for (const bind::StepWork& work : *each.works)
      if (work.depth > 0) flops[work.dtype] += work.flops;
  return flops;
}

// What times that were not recorded rest on.
std::string assumed_of(const std::vector<sim::ClassWork>& before, const std::vector<sim::ClassWork>& after,
                       const MachineModel& machine, bool is_given) {
  std::string text = is_given ? "computed for " + machine.name : "computed by the rates of recorded operators";
  const std::map<DType, double> recorded = products_of(before);
  const auto most = std::max_element(recorded.begin(), recorded.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const auto& [dtype, flops] : products_of(after)) {
    if (most == recorded.end() || recorded.contains(dtype)) continue;
    const auto was = machine.products.find(most->first), is_now = machine.products.find(dtype);
    if (was == machine.products.end() || is_now == machine.products.end())
      text += fmt::format("; it has no rate of products of {}, which count as float32", name_of(dtype));
    else
      text += fmt::format("; large products of {} are {:.2g} times as fast as of {}", name_of(dtype),
                          is_now->second.flops / was->second.flops, name_of(most->first));
  }
  return text;
}

// The share of a step in which ranks compute while a communication is under way, added up over ranks.
double overlapped(const Predicted& predicted) {
  double seconds = 0;
  for (size_t c = 0; c < predicted.classes.size(); ++c)
    seconds += predicted.timeline.classes[c].overlapped * static_cast<double>(predicted.classes[c].count);
  return seconds / (predicted.timeline.seconds * static_cast<double>(predicted.ranks.of.size()));
}

// How much of what the simulation of the recorded program leaves out holds for another one, too. Medians leave out what
// kernels and communications beside them cost each other at random: a program that overlaps less has less of it.
double share_of_left_out(const Predicted& before, const Predicted& after) {
  const double was = overlapped(before);
  return was > 0 ? std::min(1.0, overlapped(after) / was) : 1;
}

sim::RunConditions conditions_on(const Recording& recording, int64_t ranks) {
  sim::RunConditions conditions = recording.conditions;
  if (conditions.machine_ranks == static_cast<int64_t>(recording.ranks.size())) conditions.machine_ranks = ranks;
  return conditions;
}

// Ranks of one machine that run at the same time.
int64_t ranks_at_once(const sim::RunConditions& conditions, int64_t ranks, int cores) {
  const int64_t there = conditions.machine_ranks > 0 ? conditions.machine_ranks : ranks;
  return std::clamp<int64_t>(cores / conditions.threads, 1, there);
}

}  // namespace

WhatIf answer(const RecordedTrace& trace, const WhatIfChanges& changes) {
  const Recording& recording = trace.recording;
  MachineModel machine = bare_machine(trace);
  machine.cores = 0;
  const Links links{recording.mesh, recording.topology, recording.engine};
  WhatIf made = about(trace);
  std::optional<Undisturbed> undisturbed;
  if (changes.overlap == Overlap::off && recording.moves_in_background()) undisturbed.emplace(trace);
  std::vector<double> ratios, errors;
  for (size_t n = 0; n < trace.runs.size(); ++n) {
    const Predicted before = repeated(replayed(recording, trace.runs[n]), recording, machine);
    Workload changed = replayed(recording, trace.runs[n], undisturbed ? &*undisturbed : nullptr);
    apply(changes, changed, links, trace.source);
    const Predicted after = repeated(std::move(changed), recording, machine);
    errors.push_back(before.timeline.seconds / trace.runs[n].seconds - 1);
    ratios.push_back(seconds_of(after, changes) / before.timeline.seconds);
    if (n != trace.median_run()) continue;
    made.before = forecast::report(before);
    made.after = forecast::report(after);
  }
  made.replay_error = median(errors);
  made.step_ms = made.measured_ms * median(ratios);
  return made;
}

WhatIf answer(const RecordedTrace& trace, const WhatIfChanges& changes, const runtime::DryRun& other,
              const std::optional<MachineModel>& given, const Topology& topology) {
  const Recording& recording = trace.recording;
  const Mesh& mesh = other.programs->mesh();
  const auto ranks_before = static_cast<int64_t>(recording.ranks.size());
  MachineModel machine = given ? *given : bare_machine(trace), machine_before = machine;
  const sim::RunConditions conditions = conditions_on(recording, mesh.size());
  // The bandwidth of a machine file is that of all cores; what the trace says of copies is that of a rank among others.
  const int64_t copying = given ? ranks_at_once(conditions, mesh.size(), machine.cores) : 1;
  const int64_t copying_before = given ? ranks_at_once(recording.conditions, ranks_before, machine.cores) : 1;
  learn(machine, trace, conditions, mesh.size(), copying_before);
  learn(machine_before, trace, recording.conditions, ranks_before, copying_before);
  sim::PredictOptions options;
  options.engine = recording.engine;

  options.machine = &machine_before;
  options.topology = recording.topology;
  Workload unchanged =
      sim::priced(recording.mesh, sim::single_ranks(ranks_before), recording.ranks, recording.conditions, options);
  add_bucket_copies(unchanged, recording.ranks, machine_before, copying_before, recording.is_asynchronous());
  const Predicted before = sim::simulated(std::move(unchanged), recording.mesh, options);

  options.machine = &machine;
  options.topology = topology;
  const sim::RankClasses classes = sim::classes_of(*other.programs, other.symbols, {});
  const std::vector<sim::ClassWork> works = sim::planned(other, classes, recording.device);
  if (!given) require_recorded(works, machine, recording, mesh.size(), trace.source);
  Workload changed = sim::priced(mesh, classes, works, conditions, options);
  add_bucket_copies(changed, works, machine, copying, recording.is_asynchronous());
  apply(changes, changed, {mesh, topology, recording.engine}, trace.source);
  const Predicted after = sim::simulated(std::move(changed), mesh, options);

  WhatIf made = about(trace);
  made.replay_error = before.timeline.seconds * 1e3 / made.measured_ms - 1;
  const double left_out = trace.runs[trace.median_run()].seconds / before.timeline.seconds - 1;
  made.step_ms = seconds_of(after, changes) * 1e3 * (1 + left_out * share_of_left_out(before, after));
  made.before = forecast::report(before);
  made.after = forecast::report(after);
  if (made.after.extrapolated > 0) made.assumed = assumed_of(recording.ranks, works, machine, given.has_value());
  return made;
}

}  // namespace tessera::whatif

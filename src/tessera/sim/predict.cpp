#include "tessera/sim/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/cost/kernels.h"
#include "tessera/runtime/sized_rank.h"
#include "tessera/sim/deliveries.h"
#include "tessera/sim/transfer.h"

namespace tessera::sim {
namespace {

// What a simulation needs of a machine program. Kernels are left out, and memory but for the first class, since
// hundreds of classes have plans.
bind::MachineProgram without_kernels(const bind::MachineProgram& machine, bool is_first) {
  bind::MachineProgram kept;
  for (const auto& step : machine.steps) {
    auto copy = std::make_shared<bind::Step>();
    copy->info = step->info;
    copy->cost = step->cost;
    kept.steps.push_back(std::move(copy));
  }
  kept.inputs = machine.inputs;
  kept.outputs = machine.outputs;
  kept.needs = machine.needs;
  kept.queues = machine.queues;
  kept.actions = machine.actions;
  kept.infos = machine.infos;
  kept.controls = machine.controls;
  kept.branches = machine.branches;
  if (is_first) kept.buffers = machine.buffers;
  return kept;
}

void note_collective(std::vector<UsedCollective>& all, const bind::Step& step, const Transfer& transfer) {
  if (step.info.members == 1) return;
  const CollectiveTraits& traits = traits_of(*collective_of_op(step.info.op));
  const UsedCollective used{std::string(traits.name), step.info.axes, step.info.members, transfer.bytes,
                            transfer.measured};
  for (UsedCollective& known : all)
    if (known.kind == used.kind && known.axes == used.axes) {
      known.bytes = std::max(known.bytes, used.bytes);
      return;
    }
  all.push_back(used);
}

void note_delivery(std::vector<UsedCollective>& all, const Transfer& transfer) {
  const std::string kind(name_of(Collective::send));
  auto known =
      std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.kind == kind && each.outside; });
  if (known == all.end()) known = all.insert(all.end(), {kind, {}, 2, 0, transfer.measured, true});
  known->bytes = std::max(known->bytes, transfer.bytes);
}

Setting setting_of(const Mesh& mesh, const RankClasses& ranks, const RunConditions& conditions,
                   const PredictOptions& options) {
  return {mesh,           options.topology,   *options.machine,         ranks.of,
          options.engine, conditions.threads, conditions.machine_ranks, ranks.whole_permutations};
}

double copied_seconds(const std::vector<bind::HostCopy>& copies, const cost::KernelTimes& times) {
  double seconds = 0;
  for (const bind::HostCopy& copy : copies) seconds += times.copy(2.0 * static_cast<double>(copy.bytes));
  return seconds;
}

// The times of one class' steps.
struct Pricing {
  const Setting& setting;
  const cost::KernelTimes& times;
  std::string suffix;  // of kernels' signatures
  double total = 0, unmeasured = 0, uncertain = 0;

  std::vector<StepTime> add(Workload& made, const ClassWork& work, int rank, int64_t count, double slow) {
    const bind::MachineProgram& machine = *work.machine;
    ClassProgram& simulated = made.programs.emplace_back();
    simulated.machine = work.machine;
    simulated.rank = rank;
    simulated.count = count;
    simulated.before = copied_seconds(machine.inputs, times) * slow;
    simulated.after = copied_seconds(machine.outputs, times) * slow;
    std::vector<StepTime> steps;
    for (size_t s = 0; s < machine.steps.size(); ++s) {
      cost::KernelWork kernel = (*work.works)[s];
      const double runs = (*work.works)[s].runs;
      StepTime time;
      Transfer transfer;
      if (machine.steps[s]->info.communication) {
        transfer = transfer_of(*machine.steps[s], setting);
        note_collective(made.collectives, *machine.steps[s], transfer);
        transfer.seconds *= runs;
        time = {transfer.seconds, transfer.measured};
      } else {
        kernel.signature += suffix;
        const cost::KernelTime of = times.of(kernel);
        time = {of.seconds * runs * slow, of.measured};
        total += time.seconds * static_cast<double>(count);
        if (!of.measured) unmeasured += time.seconds * static_cast<double>(count);
        if (of.uncertain) uncertain += time.seconds * static_cast<double>(count);
      }
      steps.push_back(time);
      simulated.seconds.push_back(time.seconds);
      simulated.repeats.push_back(runs);
      simulated.transfers.push_back(std::move(transfer));
    }
    return steps;
  }
};

}  // namespace

std::vector<ClassWork> planned(const runtime::DryRun& run, const RankClasses& ranks, const std::string& device) {
  std::vector<ClassWork> all;
  for (size_t c = 0; c < ranks.first.size(); ++c) {
    if (const auto like = static_cast<size_t>(ranks.bound_like[c]); like < c) {
      all.push_back(all[like]);
      continue;
    }
    const runtime::SizedRank sized(
        run.programs, ranks.first[c], run.symbols,
        runtime::SizedRank::Options{runtime::threads_of_rank(*run.programs, run.options),
                                    device,
                                    {run.options.keep_all, run.options.overlap, run.options.prefetch}});
    all.push_back({std::make_shared<const bind::MachineProgram>(without_kernels(sized.plan.machine(), c == 0)),
                   std::make_shared<const std::vector<bind::StepWork>>(sized.plan.works())});
  }
  return all;
}

std::string condition(int threads, int teams) {
  return fmt::format(" @{} of {} threads", teams, threads);
}

std::string condition_of(const RunConditions& conditions, int64_t ranks, int cores) {
  const int64_t beside = conditions.machine_ranks > 0 ? conditions.machine_ranks : ranks;
  return condition(conditions.threads, static_cast<int>(std::clamp<int64_t>(cores / conditions.threads, 1, beside)));
}

Workload priced(const Mesh& mesh, const RankClasses& ranks, const std::vector<ClassWork>& classes,
                const RunConditions& conditions, const PredictOptions& options) {
  const MachineModel& machine = *options.machine;
  Workload made;
  made.ranks = ranks;
  made.conditions = conditions;
  const Setting setting = setting_of(mesh, ranks, conditions, options);
  const cost::KernelTimes times(machine);
  Pricing pricing{setting, times, condition_of(conditions, mesh.size(), machine.cores)};
  for (size_t c = 0; c < classes.size(); ++c) {
    const auto slow = options.slow.find(ranks.first[c]);
    made.steps.push_back(
        pricing.add(made, classes[c], ranks.first[c], ranks.count[c], slow == options.slow.end() ? 1 : slow->second));
  }
  if (pricing.total > 0) {
    made.extrapolated = pricing.unmeasured / pricing.total;
    made.uncertain = pricing.uncertain / pricing.total;
  }
  return made;
}

Predicted simulated(Workload workload, const Mesh& mesh, const PredictOptions& options) {
  Predicted made;
  made.ranks = std::move(workload.ranks);
  made.collectives = std::move(workload.collectives);
  made.extrapolated = workload.extrapolated;
  made.uncertain = workload.uncertain;
  for (size_t c = 0; c < workload.programs.size(); ++c) {
    const ClassProgram& program = workload.programs[c];
    PredictedClass& each = made.classes.emplace_back();
    each.rank = program.rank;
    each.count = program.count;
    each.infos = program.machine->infos;
    each.actions = *program.machine->actions;
    each.buffers = program.machine->buffers;
    each.needs = program.machine->needs;
    each.steps = std::move(workload.steps[c]);
    each.steps.resize(program.machine->steps.size());  // those of a recorded run have times only
    each.repeats = program.repeats;
    each.repeats.resize(each.steps.size(), 1);
    for (size_t s = 0; s < each.steps.size(); ++s) {
      const bind::Step& step = *program.machine->steps[s];
      each.steps[s].seconds = step.info.communication ? program.transfers[s].seconds : program.seconds[s];
      each.costs.push_back(step.cost);
    }
    each.cost = program.machine->total();
    each.copied = program.before + program.after;
  }
  made.timeline = simulate(workload.programs, setting_of(mesh, made.ranks, workload.conditions, options));
  deliver(workload.deliveries, made.ranks.of, workload.programs, made.timeline);
  return made;
}

Predicted predict(const runtime::DryRun& run, const PredictOptions& options) {
  const Mesh& mesh = run.programs->mesh();
  const RankClasses ranks = !options.fold          ? single_ranks(mesh.size())
                            : options.fold_similar ? similar_classes_of(*run.programs, run.symbols, options.slow)
                                                   : classes_of(*run.programs, run.symbols, options.slow);
  const RunConditions conditions{runtime::threads_of_rank(*run.programs, run.options), run.options.machine_ranks};
  Workload workload = priced(mesh, ranks, planned(run, ranks, options.machine->device), conditions, options);
  workload.deliveries = deliveries_of(run, setting_of(mesh, ranks, conditions, options), options.process_ranks);
  for (const Delivery& each : workload.deliveries) note_delivery(workload.collectives, each.transfer);
  return simulated(std::move(workload), mesh, options);
}

}  // namespace tessera::sim

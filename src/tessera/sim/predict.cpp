#include "tessera/sim/predict.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/cost/kernels.h"
#include "tessera/runtime/sized_rank.h"
#include "tessera/sim/measure.h"
#include "tessera/sim/transfer.h"

namespace tessera::sim {
namespace {

// A class with its plan, which owns the machine program.
struct Planned {
  std::unique_ptr<runtime::SizedRank> rank;
  std::vector<bind::StepWork> works;
};

Planned planned(const runtime::DryRun& run, int rank, const std::string& device) {
  Planned made;
  made.rank = std::make_unique<runtime::SizedRank>(
      run.programs, rank, run.symbols,
      runtime::SizedRank::Options{runtime::threads_of_rank(*run.programs, run.options),
                                  device,
                                  {run.options.keep_all, run.options.overlap, run.options.prefetch}});
  made.works = made.rank->plan.works();
  return made;
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

double copied_seconds(const std::vector<bind::HostCopy>& copies, const cost::KernelTimes& times) {
  double seconds = 0;
  for (const bind::HostCopy& copy : copies) seconds += times.copy(2.0 * static_cast<double>(copy.bytes));
  return seconds;
}

}  // namespace

Predicted predict(const runtime::DryRun& run, const PredictOptions& options) {
  const MachineModel& machine = *options.machine;
  const Mesh& mesh = run.programs->mesh();
  Predicted made;
  made.ranks = options.fold ? classes_of(*run.programs, run.symbols, options.slow) : single_ranks(mesh.size());
  const Setting setting{mesh,
                        options.topology,
                        machine,
                        made.ranks.of,
                        options.engine,
                        runtime::threads_of_rank(*run.programs, run.options),
                        run.options.machine_ranks};
  const cost::KernelTimes times(machine);
  const int64_t beside = run.options.machine_ranks > 0 ? run.options.machine_ranks : mesh.size();
  const std::string suffix =
      condition(setting.threads, static_cast<int>(std::clamp<int64_t>(machine.cores / setting.threads, 1, beside)));
  std::vector<Planned> plans;
  std::vector<ClassProgram> programs;
  double total = 0, unmeasured = 0;
  for (size_t c = 0; c < made.ranks.first.size(); ++c) {
    const int rank = made.ranks.first[c];
    const Planned& plan = plans.emplace_back(planned(run, rank, machine.device));
    const bind::MachineProgram& program = plan.rank->plan.machine();
    PredictedClass& each = made.classes.emplace_back();
    each.rank = rank;
    each.count = made.ranks.count[c];
    each.infos = program.infos;
    each.actions = *program.actions;
    each.cost = program.total();
    const auto slow = options.slow.find(rank);
    const double factor = slow == options.slow.end() ? 1 : slow->second;
    ClassProgram simulated{.machine = &program, .rank = rank, .count = each.count};
    simulated.before = copied_seconds(program.inputs, times) * factor;
    simulated.after = copied_seconds(program.outputs, times) * factor;
    for (size_t s = 0; s < program.steps.size(); ++s) {
      cost::KernelWork work = plan.works[s];
      const double runs = plan.works[s].runs;
      StepTime time;
      if (program.steps[s]->kernel) {
        work.signature += suffix;
        const cost::KernelTime of = times.of(work);
        time = {of.seconds * runs * factor, of.measured};
        const double weight = time.seconds * static_cast<double>(each.count);
        total += weight;
        if (!of.measured) unmeasured += weight;
      } else {
        const Transfer transfer = transfer_of(*program.steps[s], setting);
        time = {transfer.seconds * runs, transfer.measured};
        note_collective(made.collectives, *program.steps[s], transfer);
      }
      each.steps.push_back(time);
      simulated.seconds.push_back(time.seconds);
      simulated.repeats.push_back(runs);
    }
    programs.push_back(std::move(simulated));
  }
  made.timeline = simulate(programs, setting);
  made.extrapolated = total > 0 ? unmeasured / total : 0;
  return made;
}

}  // namespace tessera::sim

#include "tessera/sim/predict.h"

#include "tessera/base/error.h"
#include "tessera/cost/kernels.h"
#include "tessera/runtime/sized_rank.h"
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

}  // namespace

Predicted predict(const runtime::DryRun& run, const PredictOptions& options) {
  const MachineModel& machine = *options.machine;
  const Mesh& mesh = run.programs->mesh();
  const Topology topology = options.topology.empty() && mesh.size() > 1 ? machine.topology(mesh) : options.topology;
  Predicted made;
  made.ranks = classes_of(*run.programs, run.symbols, options.slow);
  const Setting setting{mesh,
                        topology,
                        machine,
                        made.ranks.of,
                        options.engine,
                        runtime::threads_of_rank(*run.programs, run.options),
                        run.options.machine_ranks};
  const cost::KernelTimes times(machine);
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
    ClassProgram simulated{&program, {}, {}, rank, each.count};
    for (size_t s = 0; s < program.steps.size(); ++s) {
      const bind::StepWork& work = plan.works[s];
      StepTime time;
      if (program.steps[s]->kernel) {
        const cost::KernelTime of = times.of(work);
        time = {of.seconds * work.runs * factor, of.measured};
        const double weight = time.seconds * static_cast<double>(each.count);
        total += weight;
        if (!of.measured) unmeasured += weight;
      } else {
        time.seconds = transfer_seconds(*program.steps[s], setting) * work.runs;
      }
      each.steps.push_back(time);
      simulated.seconds.push_back(time.seconds);
      simulated.repeats.push_back(work.runs);
    }
    programs.push_back(std::move(simulated));
  }
  made.timeline = simulate(programs, setting);
  made.extrapolated = total > 0 ? unmeasured / total : 0;
  return made;
}

}  // namespace tessera::sim

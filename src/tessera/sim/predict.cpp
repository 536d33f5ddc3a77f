#include "tessera/sim/predict.h"

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/cost/kernels.h"
#include "tessera/runtime/sized_rank.h"
#include "tessera/sim/measure.h"
#include "tessera/sim/transfer.h"

namespace tessera::sim {
namespace {

// What a simulation needs of a machine program, without kernels and memory: plans of hundreds of classes would not fit.
bind::MachineProgram without_kernels(const bind::MachineProgram& machine) {
  bind::MachineProgram kept;
  for (const auto& step : machine.steps) {
    auto copy = std::make_shared<bind::Step>();
    copy->info = step->info;
    copy->cost = step->cost;
    kept.steps.push_back(std::move(copy));
  }
  kept.needs = machine.needs;
  kept.actions = machine.actions;
  kept.infos = machine.infos;
  kept.controls = machine.controls;
  kept.branches = machine.branches;
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

double copied_seconds(const std::vector<bind::HostCopy>& copies, const cost::KernelTimes& times) {
  double seconds = 0;
  for (const bind::HostCopy& copy : copies) seconds += times.copy(2.0 * static_cast<double>(copy.bytes));
  return seconds;
}

// What classes with equal machine programs have in common.
struct Bound {
  bind::MachineProgram machine;
  std::vector<StepTime> times;  // by step, of a rank that is not slow
  std::vector<bool> computes;   // by step: it has a kernel
  std::vector<double> repeats;
  bind::Cost cost;
  double before = 0, after = 0;
};

class Predictor {
 public:
  Predictor(const runtime::DryRun& run, const PredictOptions& options)
      : run_(run),
        options_(options),
        ranks_(options.fold ? classes_of(*run.programs, run.symbols, options.slow)
                            : single_ranks(run.programs->mesh().size())),
        setting_{run.programs->mesh(),     options.topology,
                 *options.machine,         ranks_.of,
                 options.engine,           runtime::threads_of_rank(*run.programs, run.options),
                 run.options.machine_ranks},
        times_(*options.machine) {
    const int64_t beside = run.options.machine_ranks > 0 ? run.options.machine_ranks : setting_.mesh.size();
    suffix_ = condition(setting_.threads,
                        static_cast<int>(std::clamp<int64_t>(options.machine->cores / setting_.threads, 1, beside)));
  }

  Predicted made() {
    std::map<int, Bound> bound;  // by the first class
    std::vector<ClassProgram> programs;
    for (size_t c = 0; c < ranks_.first.size(); ++c) {
      const int like = ranks_.bound_like[c];
      const auto [found, fresh] = bound.try_emplace(like);
      if (fresh) found->second = bound_rank(ranks_.first[static_cast<size_t>(like)]);
      programs.push_back(add_class(c, found->second));
    }
    made_.timeline = simulate(programs, setting_);
    made_.extrapolated = seconds_ > 0 ? unmeasured_ / seconds_ : 0;
    made_.ranks = std::move(ranks_);
    return std::move(made_);
  }

 private:
  Bound bound_rank(int rank) {
    const runtime::SizedRank sized(
        run_.programs, rank, run_.symbols,
        runtime::SizedRank::Options{setting_.threads,
                                    setting_.machine.device,
                                    {run_.options.keep_all, run_.options.overlap, run_.options.prefetch}});
    const bind::MachineProgram& program = sized.plan.machine();
    std::vector<bind::StepWork> works = sized.plan.works();
    Bound bound;
    bound.machine = without_kernels(program);
    bound.cost = program.total();
    bound.before = copied_seconds(program.inputs, times_);
    bound.after = copied_seconds(program.outputs, times_);
    for (size_t s = 0; s < program.steps.size(); ++s) {
      const double runs = works[s].runs;
      bound.computes.push_back(program.steps[s]->kernel != nullptr);
      bound.repeats.push_back(runs);
      if (bound.computes.back()) {
        works[s].signature += suffix_;
        const cost::KernelTime of = times_.of(works[s]);
        bound.times.push_back({of.seconds * runs, of.measured});
      } else {
        const Transfer transfer = transfer_of(*program.steps[s], setting_);
        bound.times.push_back({transfer.seconds * runs, transfer.measured});
        note_collective(made_.collectives, *program.steps[s], transfer);
      }
    }
    return bound;
  }

  ClassProgram add_class(size_t c, const Bound& bound) {
    PredictedClass& each = made_.classes.emplace_back();
    each.rank = ranks_.first[c];
    each.count = ranks_.count[c];
    each.infos = bound.machine.infos;
    each.actions = *bound.machine.actions;
    each.needs = bound.machine.needs;
    each.steps = bound.times;
    each.repeats = bound.repeats;
    each.cost = bound.cost;
    const auto slow = options_.slow.find(each.rank);
    const double factor = slow == options_.slow.end() ? 1 : slow->second;
    ClassProgram program{.machine = &bound.machine,
                         .repeats = bound.repeats,
                         .before = bound.before * factor,
                         .after = bound.after * factor,
                         .rank = each.rank,
                         .count = each.count};
    each.copied = program.before + program.after;
    for (size_t s = 0; s < each.steps.size(); ++s) {
      each.costs.push_back(bound.machine.steps[s]->cost);
      if (bound.computes[s]) {
        each.steps[s].seconds *= factor;
        const double all = each.steps[s].seconds * static_cast<double>(each.count);
        seconds_ += all;
        if (!each.steps[s].measured) unmeasured_ += all;
      }
      program.seconds.push_back(each.steps[s].seconds);
    }
    return program;
  }

  const runtime::DryRun& run_;
  const PredictOptions& options_;
  RankClasses ranks_;
  Setting setting_;
  cost::KernelTimes times_;
  std::string suffix_;  // of kernels' signatures: how many threads run beside which
  Predicted made_;
  double seconds_ = 0, unmeasured_ = 0;  // of all ranks' kernels
};

}  // namespace

Predicted predict(const runtime::DryRun& run, const PredictOptions& options) {
  return Predictor(run, options).made();
}

}  // namespace tessera::sim

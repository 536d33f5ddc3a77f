#include <algorithm>
#include <string_view>
#include <utility>

#include "tessera/base/bytes_text.h"
#include "tessera/trainer.h"
#include "tessera/trainer/fitting.h"

namespace tessera {
inline namespace v1 {
namespace {

std::shared_ptr<void> phase_of(const TrainingSetup& setup, const std::string& what) {
  return setup.observer ? setup.observer->on_phase(what) : nullptr;
}

/// What is compiled, and how.
struct Compilation {
  const Model& model;
  const Training& training;
  const TrainingStep& step;
  TrainingSetup setup;
};

/// The step, compiled within the limit of a process less the bytes of an evaluation.
Program step_within(const Compilation& of, int64_t beside) {
  const TrainingSetup& setup = of.setup;
  trainer::Fitting fitting{of.model, of.training, setup.mesh, setup.plan, setup.compile};
  if (const size_t limit = setup.compile.memory_limit; limit > 0)
    fitting.options.memory_limit = std::max(limit, static_cast<size_t>(beside) + 1) - static_cast<size_t>(beside);
  try {
    const auto phase = phase_of(setup, "compiling");
    return compile(of.step.model, setup.mesh, setup.plan, fitting.options);
  } catch (const Error& error) {
    if (error.stage() != "memory") throw;
    std::string why(error.message());
    const int ranks = setup.compile.run.process_ranks;
    const int64_t together = ranks > 0 ? ranks : setup.mesh.size();
    if (together > 1) why += "; that is of a process with all of its " + std::to_string(together) + " ranks";
    if (beside > 0) why += ", since evaluations take " + bytes_text(static_cast<double>(beside)) + " beside it";
    const auto phase = phase_of(setup, "looking for a change that fits");
    throw Error(error.kind(), "memory", why + trainer::change_that_fits(fitting));
  }
}

/// The evaluation's plan: those parts of the step's that apply to an evaluation.
Program evaluation_of(const Compilation& of, const Program& step) {
  Plan plan = of.setup.plan;
  plan.recompute.clear();
  plan.keep_gathered.clear();
  for (Plan::Annotation& annotation : plan.annotations) annotation.optional = true;
  CompileOptions options = of.setup.compile;
  options.observe = nullptr;
  options.memory_limit = 0;
  options.run.checkpoints = false;
  options.sharing = step;
  const auto phase = phase_of(of.setup, "compiling the evaluation");
  return compile(evaluation(of.model, *of.setup.evaluation), of.setup.mesh, plan, options);
}

int64_t bytes_beside(const Program& evaluation, const Program& step) {
  int64_t most = 0;
  for (const int64_t rank : evaluation.unlike_ranks())
    most = std::max(most, evaluation.figures(rank).peak_bytes - evaluation.shared_bytes(rank, step));
  return most;
}

}  // namespace

TrainingPrograms compile_training(const Model& model, const Training& training, const TrainingStep& step,
                                  const TrainingSetup& setup) {
  const Compilation of{model, training, step, setup};
  if (!setup.evaluation) return {training, step, step_within(of, 0), std::nullopt, 0, 0};
  // The step decides how states are stored, which does not depend on a limit. How much memory is left for the step is
  // known only when the evaluation is compiled.
  const bool asks = setup.plan.recompute == "auto" || setup.compile.observe;
  Compilation any = of;
  any.setup.compile.memory_limit = 0;
  any.setup.compile.observe = nullptr;
  if (any.setup.plan.recompute == "auto") any.setup.plan.recompute.clear();
  const Program unlimited = step_within(any, 0);
  TrainingPrograms made{training, step, unlimited, evaluation_of(of, unlimited), 0, 0};
  made.evaluation_bytes = bytes_beside(*made.evaluation, unlimited);
  const int64_t needed = unlimited.process_bytes_with(*made.evaluation);
  made.process_beside = needed - unlimited.process_bytes();
  const size_t limit = setup.compile.memory_limit;
  if (asks || (limit > 0 && static_cast<size_t>(needed) > limit)) made.program = step_within(of, made.process_beside);
  return made;
}

int64_t largest_rank(const Program& program) {
  const std::vector<int64_t> ranks = program.unlike_ranks();
  return *std::max_element(ranks.begin(), ranks.end(), [&](int64_t a, int64_t b) {
    return program.figures(a).peak_bytes < program.figures(b).peak_bytes;
  });
}

}  // namespace v1
}  // namespace tessera

#include "tessera/cli/training_programs.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "tessera/cli/progress.h"

namespace tessera::cli {
namespace {

std::string text_of(int64_t bytes) {
  return bytes_text(static_cast<double>(bytes));
}

/// The step beside so many bytes of an evaluation, within the limit of a process.
Program step_within(const Console& console, const TrainingSet& set, int64_t beside) {
  Fitting fitting = set.fitting;
  CompileOptions& options = fitting.options;
  if (set.process_limit > 0)
    options.memory_limit = std::max(set.process_limit, static_cast<size_t>(beside) + 1) - static_cast<size_t>(beside);
  try {
    Progress progress(console, "compiling");
    return compile(set.step.model, fitting.mesh, fitting.plan, options);
  } catch (const Error& error) {
    constexpr std::string_view kStage = "[memory] ";
    if (!std::string_view(error.what()).starts_with(kStage)) throw;
    std::string why = error.what() + kStage.size();
    if (const int ranks = options.run.process_ranks; ranks > 1)
      why += "; that is of a process with all of its " + std::to_string(ranks) + " ranks";
    if (beside > 0) why += ", since evaluations take " + text_of(beside) + " beside it";
    Progress progress(console, "looking for a change that fits");
    throw Error(error.kind(), "memory", why + change_that_fits(fitting));
  }
}

/// The evaluation's plan is the step's, as far as it is about what an evaluation has.
Program evaluation_of(const Console& console, const TrainingSet& set, const Program& step) {
  Plan plan = set.fitting.plan;
  plan.recompute.clear();
  plan.keep_gathered.clear();
  for (Plan::Annotation& annotation : plan.annotations) annotation.optional = true;
  CompileOptions options = set.fitting.options;
  options.observe = nullptr;
  options.run.checkpoints = false;
  options.sharing = step;
  Progress progress(console, "compiling the evaluation");
  return compile(evaluation(set.fitting.model, *set.evaluation), set.fitting.mesh, plan, options);
}

int64_t bytes_beside(const Program& evaluation, const Program& step) {
  int64_t most = 0;
  for (const int64_t rank : evaluation.unlike_ranks())
    most = std::max(most, evaluation.figures(rank).peak_bytes - evaluation.shared_bytes(rank, step));
  return most;
}

}  // namespace

TrainingPrograms compile_all(const Console& console, const TrainingSet& set) {
  if (!set.evaluation) return {step_within(console, set, 0), std::nullopt};
  // The step decides how states are stored, which does not depend on a limit; how much it may take itself is known only
  // with the evaluation.
  const bool asks = set.fitting.plan.recompute == "auto" || set.fitting.options.observe;
  TrainingSet any = set;
  any.process_limit = 0;
  any.fitting.options.observe = nullptr;
  if (any.fitting.plan.recompute == "auto") any.fitting.plan.recompute.clear();
  const Program step = step_within(console, any, 0);
  TrainingPrograms made{step, evaluation_of(console, set, step)};
  made.evaluation_bytes = bytes_beside(*made.evaluation, step);
  const int64_t needed = step.process_bytes_with(*made.evaluation);
  made.process_beside = needed - step.process_bytes();
  const bool fits = set.process_limit == 0 || static_cast<size_t>(needed) <= set.process_limit;
  if (asks || !fits) made.step = step_within(console, set, made.process_beside);
  return made;
}

}  // namespace tessera::cli

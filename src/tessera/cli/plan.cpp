#include "tessera/cli/command.h"
#include "tessera/cli/help.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/planner_report.h"
#include "tessera/cli/progress.h"
#include "tessera/cli/slow_level_text.h"
#include "tessera/cli/step_options.h"
#include "tessera/cli/time_options.h"
#include "tessera/files.h"
#include "tessera/planner.h"

namespace tessera::cli {
namespace {

class MakePlan : public Command {
 public:
  void declare(CLI::App& app) override {
    step_.declare(app, "plan a training step of the model");
    time_.declare(app);
    under(app, Heading::mesh);
    app.add_option("--devices", devices_, "the number of ranks; by default, as many as --mesh has")
        ->check(above_zero());
    takes_one_of(app.add_option("--objective", objective_,
                                "time: the fastest step that fits into the memory; memory: the least peak of a rank"),
                 {"time", "memory"})
        ->capture_default_str();
    app.add_option(
           "--search-time", seconds_,
           "seconds after which the best plan so far is taken; 0: all candidates are searched; by default 60, but "
           "10 for a model of twelve or more alike blocks on up to 64 devices, unless kernels are measured")
        ->check(zero_or_more());
    app.add_option("--best", best_, "how many plans to show")->check(above_zero())->capture_default_str();
    memory_.declare(app, "bytes (512M, 80G) that a rank may need at its peak; by default, what the machine has");
    under(app, Heading::output);
    app.add_option("-o,--write-plan", output_, "the plan, as a JSON file that --plan takes");
    declare_paths(app, {{"--write-plan", PathUse::writes}});
  }

  int run(Console& console) override {
    PlannerSettings settings;
    settings.predict = time_.settings(step_.plan.topology());
    settings.predict.overlap = !step_.plan.overlap.off();
    if (!output_.empty()) require_writable(output_);
    const AskedStep step = step_.asked(console);
    if (!output_.empty()) require_writable(output_);  // the model's files are known now
    settings.devices = devices_ > 0 ? devices_ : step_.plan.mesh(step.plan).size();
    if (devices_ == 0 && step.plan.mesh.empty())
      throw Error(ErrorKind::user, "plan", "the number of devices is missing; give it, as --devices 64");
    settings.memory_limit = static_cast<double>(memory_.bytes());
    settings.objective = objective_ == "memory" ? PlanObjective::memory : PlanObjective::time;
    settings.training = step.training;
    settings.fixed = step.plan;
    settings.best = best_;
    if (settings.objective == PlanObjective::time && time_.is_here(settings.predict))
      settings.measure = [&](const Program& program, PredictSettings& predict) {
        return time_.measure(console, program, predict);
      };
    settings.seconds = seconds_ ? *seconds_ : usual_search_seconds(step.model, settings);
    PlannerReport report = searched(console, step.model, settings);
    for (PlannedOption& option : report.best) {
      option.plan.shapes = step.stated;
      if (!step.training) option.plan.micro_batches = step.micro_batches;
    }
    if (!output_.empty()) write_file(output_, report.best.front().plan.to_json() + "\n");
    const std::optional<SlowLevel> slow = slow_level_of(step, settings.predict.machine, settings.devices);
    if (console.json) {
      Json object = {{"model", step_.model}, {"devices", settings.devices}};
      object.update(planner_json(report, settings));
      if (slow) object["slow_level"] = slow_level_json(*slow);
      console.emit(object);
      return kGood;
    }
    if (!step.note.empty()) console.note(step.note);
    print_planner_report(console, report, settings);
    if (slow) console.say(slow_level_text(*slow));
    if (!output_.empty()) console.note("wrote " + output_ + ", which --plan takes");
    return kGood;
  }

 private:
  static PlannerReport searched(const Console& console, const Model& model, PlannerSettings& settings) {
    Progress progress(console, "searching for a plan");
    settings.observe = [&](const PlannerProgress& now) {
      progress.next("searching for a plan, " + std::to_string(now.evaluated) + " of " + std::to_string(now.candidates) +
                    " candidates done" + (now.best_ms > 0 ? ", the best takes " + time_text(now.best_ms * 1e-3) : "") +
                    ": " + now.next);
    };
    return find_plan(model, settings);
  }

  std::string objective_ = "time", output_;
  int64_t devices_ = 0;
  size_t best_ = 5;
  std::optional<double> seconds_;
  MemoryOption memory_;
  StepOptions step_;
  TimeOptions time_;
};

}  // namespace

std::unique_ptr<Command> make_plan() {
  return std::make_unique<MakePlan>();
}

}  // namespace tessera::cli

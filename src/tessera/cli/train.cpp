#include <utility>
#include <vector>

#include "tessera/cli/command.h"
#include "tessera/cli/details.h"
#include "tessera/cli/memory_plan.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/overlap_report.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"
#include "tessera/cli/recorded_command.h"
#include "tessera/cli/resident_memory.h"
#include "tessera/cli/selection_report.h"
#include "tessera/cli/stop_signal.h"
#include "tessera/cli/time_options.h"
#include "tessera/cli/train_options.h"
#include "tessera/cli/training_data.h"
#include "tessera/cli/training_figures.h"
#include "tessera/cli/training_report.h"
#include "tessera/trainer.h"
#include "tessera/what_if.h"

namespace tessera::cli {
namespace {

// Predicted and measured steps, beside each other. `seconds`: the median of the steps; 0: there were none.
void tell_times(Console& console, const std::optional<Forecast>& forecast, double seconds) {
  if (console.json) {
    if (forecast) console.known["predicted"] = forecast_json(*forecast);
    if (seconds > 0) console.known["measured"] = {{"step_ms", seconds * 1e3}};
  } else if (forecast && seconds > 0) {
    console.say(compared_text(forecast->prediction, seconds * 1e3));
  }
}

// Some launchers end all ranks when one ends with another code than 0.
int all_left(const Console& console, int code) {
  if (console.connection) console.connection->from_all(0);
  return code;
}

int stopped(const Console& console, const std::string& when) {
  console.advise("stopped by a signal " + when);
  return all_left(console, kStopped);
}

class Train : public Command {
 public:
  void declare(CLI::App& app) override {
    app_ = &app;
    app.add_option("model", model_, "an ONNX file: the forward model, with its parameters")->required();
    options_.declare(app);
    plan_.declare(app);
    app.remove_option(app.get_option("--state"));  // the step makes its states itself
    dump_.declare(app);
    time_.declare(app);
    details_.declare(app);
    run_.declare(app, plan_.overlap);
    declare_paths(app, {{"model", PathUse::reads, files_of_model}});
  }

  int run(Console& console) override {
    if (dump_.list(console)) return kGood;
    options_.read_config();
    dump_.check();
    details_.check(console);
    if (!options_.dry_run)
      if (std::optional<int> ended = begin(console)) return *ended;
    require_outputs(console);
    const Model whole = load_model(console, model_);
    require_outputs(console);  // its tensors may be in files that are known now
    Model model = options_.data.empty() ? whole : Batches::fed(whole, options_.data);
    const bool feeds_initializers = model.inputs().size() > whole.inputs().size();
    Plan plan = plan_.plan(model, console, true);
    written_ = feeds_initializers ? whole : model;
    if (!plan.states.empty())
      wrong_training(
          "the plan pairs the states of a step ('states'), which tessera train makes itself; leave them out");
    Training training = options_.training(plan);
    plan.dtype.reset();
    if (!options_.save_average.empty() && training.average == 0)
      wrong_training("--save-average needs moving averages; give their decay, as --average 0.999");
    const bool trains = !options_.dry_run && (options_.emit.empty() || options_.steps > 0 || !options_.data.empty());
    if (options_.resume && options_.checkpoints.empty())
      wrong_training("--resume needs the folder of checkpoints; give --checkpoints DIR");
    const bool evaluates = !options_.eval_data.empty() || options_.held_out > 0;
    std::optional<Batches> data;
    if (trains || (options_.dry_run && !options_.data.empty()))
      data = open_data(console, model, training, plan, trains);
    else if (options_.dry_run)
      assume_sizes(console, model, plan);
    training.sizes = plan.shapes;
    plan.shapes.clear();  // the step has these sizes only
    if (trains) checkpoints_ = open_checkpoints(console);
    if (evaluates) evaluation_ = evaluation_of(model, training, evaluated_);
    const TrainingStep step = [&] {
      Progress progress(console, "differentiating");
      return training_step(model, training);
    }();
    for (const std::string* path : {&options_.save_final, &options_.save_average})
      if (path->ends_with(".onnx")) require_can_hold(written_, step);
    if (options_.dry_run) return show_plan(console, model, training, step, plan);
    if (trains) return train(console, model, training, step, plan, std::move(*data));
    emit(console, step);
    tell_selection(console, step);
    return kGood;
  }

 private:
  // The data for training and evaluation, and what follows from them: steps, sizes, and the extents of labels.
  Batches open_data(const Console& console, const Model& model, Training& training, Plan& plan, bool trains) {
    const Progress progress(console, "reading data");
    if (options_.data.empty())
      wrong_training(
          "there is no data; give --data x.npz, whose arrays have one slice for each step, or --data corpus.txt");
    Batches data = Batches::open(options_.data, model, training, options_.batches(false, run_.memory.bytes()));
    if (trains) steps_ = data.steps(options_.steps);
    evaluated_ = batches_to_evaluate(options_, model, training, run_.memory.bytes());
    plan_.add_sizes(plan, model.inputs(), data.extents());
    training.label_dims = data.label_dims();
    return data;
  }

  // A dry run without data takes the given sizes, and defaults.
  void assume_sizes(const Console& console, const Model& model, Plan& plan) const {
    if (options_.batch || options_.sequence)
      wrong_training("--batch and --sequence say how --data is cut; without data, write --shapes batch=8,sequence=64");
    std::string note;
    plan.shapes = model.complete(plan.shapes, &note);
    if (!note.empty()) console.note("note: " + note);
  }

  void require_outputs(const Console& console) const {
    if (!console.speaks()) return;
    std::vector<std::string> paths = {options_.memory_plan};  // all that a dry run writes
    if (!options_.dry_run)
      paths.insert(paths.end(),
                   {options_.metrics, options_.profile, options_.save_final, options_.save_average, options_.emit});
    for (const std::string& path : paths)
      if (!path.empty()) require_writable(path);
  }

  // Starts the ranks if they are processes, and waits for them.
  std::optional<int> begin(Console& console) {
    const StopSignal stop(StopSignal::Of::spawned_ranks);
    return run_.begin(console, "train");
  }

  // The folder of --checkpoints, held for this run; null if there is none. All ranks call it, before anything is
  // written.
  std::unique_ptr<Checkpoints> open_checkpoints(const Console& console) const {
    if (options_.checkpoints.empty()) return nullptr;
    auto checkpoints = std::make_unique<Checkpoints>(options_.checkpoints, options_.keep, console.connection);
    if (const std::string why = checkpoints->lock_problem(); !why.empty()) console.warn(why);
    if (console.speaks() && !options_.resume)
      if (const std::vector<int64_t> there = Checkpoints::steps(options_.checkpoints); !there.empty())
        wrong_training(options_.checkpoints + " has checkpoints of another run, the last one of step " +
                       std::to_string(there.back()) + "; give --resume to continue from it, or another folder");
    return checkpoints;
  }

  void emit(const Console& console, const TrainingStep& step) const {
    if (options_.emit.empty() || !console.speaks()) return;
    step.write(options_.emit);
    console.note("wrote " + options_.emit);
  }

  // After all checks.
  void tell_selection(const Console& console, const TrainingStep& step) const {
    if (!console.quiet || options_.dry_run) print_selection(console, step, options_.verbose);
    for (const std::string& note : step.notes) console.note("note: " + note);
  }

  TrainingPrograms compiled(Console& console, const Model& model, const Training& training, const TrainingStep& step,
                            const Plan& plan, TrainingObserver& observer) {
    TrainingSetup setup;
    setup.mesh = plan_.mesh(plan);
    setup.plan = plan;
    setup.compile.observe = dump_.observer(console);
    time_.choose(console, plan_.topology(), setup.mesh, setup.compile);
    links_ = setup.compile.topology;
    setup.compile.run = run_.planned(console, setup.mesh, !options_.dry_run);
    setup.compile.run.checkpoints = !options_.checkpoints.empty();
    setup.evaluation = evaluation_;
    setup.compile.memory_limit = run_.memory.bytes();
    if (setup.compile.memory_limit == 0 && !options_.dry_run) {
      const int here = console.connection ? console.connection->launch().local_size : 1;  // processes
      setup.compile.memory_limit = machine_memory() / static_cast<size_t>(here);
    }
    setup.observer = &observer;
    return compile_training(model, training, step, setup);
  }

  // The memory of the rank that needs most, and what ranks communicate.
  int show_plan(Console& console, const Model& model, const Training& training, const TrainingStep& step,
                const Plan& plan) {
    TrainingReport report(console, options_, false);
    const TrainingPrograms programs = compiled(console, model, training, step, plan, report);
    const Program& program = programs.program;
    const int64_t ranks = run_.ranks_of_process(console, program.mesh());
    Progress progress(console, "planning memory");
    const int64_t rank = largest_rank(program);
    const MemoryClasses memory(step, program, {program.figures(rank).peak_bytes}, programs.evaluation_bytes, ranks,
                               program.process_bytes() + programs.process_beside, rank);
    progress.end();
    tell_selection(console, step);
    console.note(program.summary());
    console.say(memory_line(step, program, memory, std::nullopt));
    dump_.machine(console, program, {}, run_.session(console));
    if (!options_.memory_plan.empty()) write_memory_plan(program, 0, options_.memory_plan);
    std::optional<Forecast> forecast;
    if (std::optional<PredictSettings> settings = time_.settings_if_asked(plan_.topology())) {
      settings->threads_per_rank = run_.threads;
      settings->overlap = run_.overlaps();
      forecast = time_.predict(console, program, std::move(*settings), false);
    }
    OverlapRows overlap;
    if (forecast) overlap.predict(forecast->prediction);
    if (!console.json) {
      print_collectives(console, program.summary());
      if (forecast) print_forecast(console, *forecast);
      print_overlap(console, plan_.overlap.reports(), overlap, program.summary(), forecast);
      return kGood;
    }
    Json object = plan_json(model_, step, program, memory);
    if (forecast) object["predicted"] = forecast_json(*forecast);
    if (forecast || plan_.overlap.reports()) object["overlap"] = overlap_json(overlap, program.summary(), forecast);
    object.update(details_.of(program, {}, forecast));
    dump_.add_to(object);
    console.emit(object);
    return kGood;
  }

  int train(Console& console, const Model& model, const Training& training, const TrainingStep& step, const Plan& plan,
            Batches data) {
    const StopSignal stop(StopSignal::Of::this_process);
    TrainingReport report(console, options_, details_.asked || plan_.overlap.reports());
    TrainingPrograms programs = compiled(console, model, training, step, plan, report);
    const Program program = programs.program;
    const int64_t evaluation_bytes = programs.evaluation_bytes, process_beside = programs.process_beside;
    if (!check_data(console, data, evaluated_, stop)) {
      if (console.json) console.emit({{"model", model_}, {"steps", 0}});
      return stopped(console, "before the first step");
    }
    emit(console, step);
    TrainerOptions options = trainer_options(console, report);
    const SessionOptions session_options = options.session;
    ResidentPeak resident;
    Trainer trainer(written_, std::move(programs), std::move(data), std::move(options));
    const int64_t ranks = run_.ranks_of_process(console, program.mesh());
    const MemoryClasses memory(step, program, trainer.peak_bytes(), evaluation_bytes, ranks,
                               trainer.process_bytes() + process_beside);
    tell_selection(console, step);
    console.note(program.summary());
    console.note(memory_line(step, program, memory, trainer.session().threads_per_rank()));
    dump_.machine(console, program, {}, session_options);
    if (!options_.memory_plan.empty() && console.speaks()) write_memory_plan(program, 0, options_.memory_plan);

    resident.pause();
    const std::optional<Forecast> forecast = time_.predict_run(console, program, trainer.session().threads_per_rank(),
                                                               plan_.topology(), {}, run_.overlaps());
    resident.go_on();
    if (forecast && !console.json) print_forecast(console, *forecast);
    if (options_.resume) resume(console, trainer);
    report.begin(trainer, memory, steps_);
    if (!options_.profile.empty() && console.speaks()) record(report, program, training, session_options);
    const bool ended = trainer.train({steps_, options_.eval_every, options_.save_every, [&] { return stop.asked(); }});
    resident.pause();
    if (!options_.profile.empty() && trainer.steps_made() == trainer.first_step())
      console.note("no step was left to trace for --profile");
    write_results(console, trainer);
    OverlapRows overlap = report.overlap();
    if (forecast) overlap.predict(forecast->prediction);
    if (console.speaks() && console.json) {
      console.known = plan_json(model_, step, program, memory);
      if (resident.bytes() > 0) console.known["process"]["resident_bytes"] = resident.bytes();
      report.add_to(console.known);
      if (forecast || overlap.are_measured())
        console.known["overlap"] = overlap_json(overlap, program.summary(), forecast);
      console.known.update(details_.of(program, {}, forecast, &report.trace()));
      dump_.add_to(console.known);
    }
    if (console.speaks()) tell_times(console, forecast, report.median_seconds());
    if (!console.json) print_overlap(console, plan_.overlap.reports(), overlap, program.summary(), forecast);
    require_saved(console, trainer, ended);
    if (console.json) console.emit(console.known);
    if (ended) return all_left(console, kGood);
    return stopped(console, "after step " + std::to_string(trainer.steps_made()) +
                                (options_.checkpoints.empty() ? "" : "; --resume continues from there"));
  }

  // What --profile says of the program, beside its times.
  void record(TrainingReport& report, const Program& program, const Training& training,
              const SessionOptions& session) const {
    Json command = recorded_command(*app_, training.sizes);
    for (const auto& [name, dims] : training.label_dims) command["label_dims"][name] = dims;
    report.record(recorded_program(program, {}, session, links_), command);
  }

  TrainerOptions trainer_options(const Console& console, TrainingReport& report) {
    TrainerOptions options;
    options.session = run_.session(console);
    options.session.profile = !options_.profile.empty() || details_.asked || plan_.overlap.reports();
    options.session.checkpoints = checkpoints_ != nullptr;
    options.checkpoints = std::move(checkpoints_);
    options.evaluated = std::move(evaluated_);
    options.evaluated_batches = options_.eval_steps;
    options.observer = &report;
    return options;
  }

  void resume(const Console& console, Trainer& trainer) const {
    const std::optional<int64_t> step = trainer.resume(steps_, options_.other_data);
    if (!step)
      return console.note("there is no checkpoint in " + options_.checkpoints + " yet; training begins at step 0");
    const std::string path = Checkpoints::at(options_.checkpoints, *step).string();
    console.note(*step < steps_ ? "goes on from " + path
                                : path + " has made all " + std::to_string(steps_) +
                                      " steps; what is still to be written follows");
  }

  // --save-final and --save-average
  void write_results(const Console& console, Trainer& trainer) const {
    for (const auto& [path, averaged] :
         {std::pair(options_.save_final, false), std::pair(options_.save_average, true)}) {
      if (path.empty()) continue;
      trainer.write_parameters(path, averaged);
      console.note("wrote " + path);
    }
  }

  // After that: throws a running error if the last step's states should be in a checkpoint and are not, unless the run
  // has ended and written its parameters.
  void require_saved(const Console& console, const Trainer& trainer, bool ended) const {
    const int64_t made = trainer.steps_made();
    if (options_.checkpoints.empty() || !console.speaks() || made == trainer.first_step()) return;
    if (trainer.saved_step() == made || (ended && !options_.save_final.empty())) return;
    throw Error(
        ErrorKind::running, "train",
        "the states after step " + std::to_string(made) + " are saved nowhere: " + trainer.checkpoint_problem() +
            "; make room, then run the command again with --resume, which continues from the last good checkpoint");
  }

  const CLI::App* app_ = nullptr;
  std::string model_;
  Topology links_;  // for which the step was compiled
  Model written_;   // with trained parameters; has all initializers
  int64_t steps_ = 0;
  std::unique_ptr<Checkpoints> checkpoints_;  // until the run takes it
  std::optional<Batches> evaluated_;          // until the run takes them
  std::optional<Training> evaluation_;        // if there is one
  TrainOptions options_;
  PlanOptions plan_;
  DumpOptions dump_;
  TimeOptions time_;
  DetailOptions details_;
  RunOptions run_;
};

}  // namespace

std::unique_ptr<Command> make_train() {
  return std::make_unique<Train>();
}

}  // namespace tessera::cli

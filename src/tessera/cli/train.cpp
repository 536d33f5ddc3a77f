#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <utility>
#include <vector>

#include "tessera/cli/command.h"
#include "tessera/cli/memory_plan.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"
#include "tessera/cli/selection_report.h"
#include "tessera/cli/train_options.h"
#include "tessera/cli/training_data.h"
#include "tessera/cli/training_figures.h"
#include "tessera/cli/training_programs.h"
#include "tessera/cli/training_run.h"
#include "tessera/ir/pages.h"

namespace tessera::cli {
namespace {

class Train : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("model", model_, "an ONNX file: the forward model, with its parameters")->required();
    options_.declare(app);
    plan_.declare(app);
    app.remove_option(app.get_option("--state"));  // the step makes its states itself
    dump_.declare(app);
    run_.declare(app);
    declare_paths(app, {{"model", PathUse::reads, files_of_model}});
  }

  int run(Console& console) override {
    if (dump_.list(console)) return kGood;
    options_.read_config();
    dump_.check();
    if (!options_.dry_run)
      if (std::optional<int> ended = begin(console)) return *ended;
    require_outputs(console);
    const Model whole = load_model(console, model_);
    require_outputs(console);  // its tensors may be in files that are known now
    Model model = TrainingData::feeds(whole, options_);
    const bool feeds_initializers = model.inputs().size() > whole.inputs().size();
    Plan plan = plan_.plan(model, console, true);
    written_ = feeds_initializers ? whole : model;
    if (!plan.states.empty())
      wrong_training(
          "the plan pairs the states of a step ('states'), which tessera train makes itself; leave them out");
    Training training = options_.training(plan.dtype ? std::string(name_of(*plan.dtype)) : "");
    plan.dtype.reset();
    if (!options_.save_average.empty() && training.average == 0)
      wrong_training("--save-average needs moving averages; give their decay, as --average 0.999");
    const bool trains = !options_.dry_run && (options_.emit.empty() || options_.steps > 0 || !options_.data.empty());
    if (options_.resume && options_.checkpoints.empty())
      wrong_training("--resume needs the folder of checkpoints; give --checkpoints DIR");
    const bool evaluates = !options_.eval_data.empty() || options_.held_out > 0;
    std::optional<TrainingData> data;
    if (trains || (options_.dry_run && !options_.data.empty())) {
      const Progress progress(console, "reading data");
      data.emplace(options_, model, training, run_.memory.bytes());
      if (trains) steps_ = data->steps(options_.steps);
      evaluated_ = TrainingData::for_evaluation(options_, model, training, run_.memory.bytes());
      plan_.add_sizes(plan, model.inputs(), data->extents());
      training.label_dims = data->given_label_dims();
    } else if (options_.dry_run) {
      if (options_.batch || options_.sequence)
        wrong_training(
            "--batch and --sequence say how --data is cut; without data, write --shapes batch=8,sequence=64");
      std::string note;
      plan.shapes = model.complete(plan.shapes, &note);
      if (!note.empty()) console.note("note: " + note);
    }
    training.sizes = plan.shapes;
    plan.shapes.clear();  // the step has these sizes only
    if (trains) checkpoints_ = open_checkpoints(console, options_);
    if (evaluates) evaluation_ = evaluation_of(model, training);
    const TrainingStep step = [&] {
      Progress progress(console, "differentiating");
      return training_step(model, training);
    }();
    for (const std::string* path : {&options_.save_final, &options_.save_average})
      if (path->ends_with(".onnx")) require_can_hold(written_, step);
    for (std::optional<TrainingData>* fed : {&data, &evaluated_})
      if (*fed) (*fed)->prepare_for(step);
    if (options_.dry_run) return show_plan(console, model, training, step, plan);
    if (trains) return train(console, model, training, step, plan, *data);
    emit(console, step);
    tell_selection(console, step);
    return kGood;
  }

 private:
  void require_outputs(const Console& console) const {
    if (!console.speaks()) return;
    std::vector<std::string> paths = {options_.memory_plan};  // all that a dry run writes
    if (!options_.dry_run)
      paths.insert(paths.end(),
                   {options_.metrics, options_.profile, options_.save_final, options_.save_average, options_.emit});
    for (const std::string& path : paths)
      if (!path.empty()) require_writable(path);
  }

  // Starts ranks if they are processes that are to be spawned, and waits for them.
  std::optional<int> begin(Console& console) {
    const StopSignal stop(StopSignal::Of::spawned_ranks);
    return run_.begin(console, "train");
  }

  void emit(const Console& console, const TrainingStep& step) const {
    if (options_.emit.empty() || !console.speaks()) return;
    step.write(options_.emit);
    console.note("wrote " + options_.emit);
  }

  // Reads all data, which may take long, and so comes after whatever else refuses the run. One process of each machine
  // does it. The others exchange a word with it meanwhile, since no wait may be longer than the timeout. Returns
  // whether it came to the end: not if somebody was told to stop.
  bool check_data(const Console& console, const TrainingData& data, const StopSignal& stop) const {
    enum Word : int64_t { stops, goes_on, done };
    const auto& connection = console.connection;
    const Progress progress(console, "checking data");
    std::atomic<bool> stopped = false;
    std::future<void> checked = std::async(std::launch::async, [&] {
      if (connection && connection->launch().local_rank > 0) return;
      const auto is_stopped = [&] { return stopped.load(); };
      data.verify(is_stopped);
      if (evaluated_) evaluated_->verify(is_stopped);
    });
    int64_t least = goes_on;
    try {
      while (least == goes_on) {
        const bool is_done = checked.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready;
        const int64_t own = stop.asked() ? stops : is_done ? done : goes_on;
        const std::vector<int64_t> all = connection ? connection->from_all(own) : std::vector<int64_t>{own};
        least = *std::min_element(all.begin(), all.end());
      }
    } catch (const Error&) {  // of another rank, which need not wait for the files
      stopped = true;
      throw;
    }
    stopped = least == stops;
    checked.get();
    return !stopped;
  }

  // Once nothing refuses the run any more.
  void tell_selection(const Console& console, const TrainingStep& step) const {
    if (!console.quiet || options_.dry_run) print_selection(console, step, options_.verbose);
    for (const std::string& note : step.notes) console.note("note: " + note);
  }

  // Data that are evaluated may have other extents than those to train on.
  Training evaluation_of(const Model& model, const Training& training) const {
    Training evaluation = training;
    if (!evaluated_) return evaluation;
    Plan sized;
    PlanOptions().add_sizes(sized, model.inputs(), evaluated_->extents());
    for (const auto& [symbol, size] : sized.shapes) evaluation.sizes[symbol] = size;
    evaluation.label_dims = evaluated_->given_label_dims();
    return evaluation;
  }

  TrainingPrograms compiled(Console& console, const Model& model, const Training& training, const TrainingStep& step,
                            const Plan& plan) {
    const Mesh mesh = plan_.mesh(plan);
    CompileOptions options{{}, dump_.observer(console), plan_.topology()};
    options.run = run_.planned(console, mesh, !options_.dry_run);
    options.run.checkpoints = !options_.checkpoints.empty();
    TrainingSet set{{model, training, mesh, plan, options}, step, evaluation_};
    set.process_limit = run_.memory.bytes();
    if (set.process_limit == 0 && !options_.dry_run) {
      const int here = console.connection ? console.connection->launch().local_size : 1;  // processes
      set.process_limit = machine_memory() / static_cast<size_t>(here);
    }
    return compile_all(console, set);
  }

  // What the rank holds that needs most, and what ranks communicate.
  int show_plan(Console& console, const Model& model, const Training& training, const TrainingStep& step,
                const Plan& plan) {
    const TrainingPrograms programs = compiled(console, model, training, step, plan);
    const Program& program = programs.step;
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
    if (!console.json) {
      print_collectives(console, program.summary());
      return kGood;
    }
    Json object = plan_json(model_, step, program, memory);
    dump_.add_to(object);
    console.emit(object);
    return kGood;
  }

  int train(Console& console, const Model& model, const Training& training, const TrainingStep& step, const Plan& plan,
            TrainingData& data) {
    const StopSignal stop(StopSignal::Of::this_process);
    const TrainingPrograms programs = compiled(console, model, training, step, plan);
    const Program& program = programs.step;
    if (!check_data(console, data, stop)) {
      if (console.json) console.emit({{"model", model_}, {"steps", 0}});
      return stopped(console, "before the first step");
    }
    emit(console, step);
    const Tensors inputs = data.at(data.cursor()).tensors;
    SessionOptions session_options = run_.session(console);
    session_options.profile = !options_.profile.empty();
    session_options.checkpoints = !options_.checkpoints.empty();
    const int64_t ranks = run_.ranks_of_process(console, program.mesh());
    Progress progress(console, "loading weights");
    Session session(program, session_options);
    const std::vector<int64_t> peaks = session.peak_bytes(inputs);
    int64_t process = session.process_bytes();
    if (console.connection) process = std::ranges::max(console.connection->from_all(process));
    const MemoryClasses memory(step, program, peaks, programs.evaluation_bytes, ranks,
                               process + programs.process_beside);
    progress.end();
    std::optional<Evaluator> evaluator;
    if (programs.evaluation) evaluator = evaluator_of(console, session, *programs.evaluation);
    tell_selection(console, step);
    console.note(program.summary());
    console.note(memory_line(step, program, memory, session.threads_per_rank()));
    dump_.machine(console, program, {}, session_options);
    if (!options_.memory_plan.empty() && console.speaks()) write_memory_plan(program, 0, options_.memory_plan);

    TrainingRun run({console, options_, written_, training, step, program, run_.session(console), session, data, memory,
                     steps_, std::move(checkpoints_)});
    run.begin();
    run.train(stop, evaluator);
    run.save_results();
    if (console.speaks() && console.json) {
      console.known = plan_json(model_, step, program, memory);
      run.add_to(console.known);
      dump_.add_to(console.known);
    }
    run.require_saved();
    if (console.json) console.emit(console.known);
    if (!run.was_stopped()) return all_left(console, kGood);
    return stopped(console, "after step " + std::to_string(run.steps_made()) +
                                (options_.checkpoints.empty() ? "" : "; --resume goes on from there"));
  }

  static int stopped(const Console& console, const std::string& when) {
    console.advise("stopped by a signal " + when);
    return all_left(console, kStopped);
  }

  // Some launchers end all ranks when one has left with another code than 0.
  static int all_left(const Console& console, int code) {
    if (console.connection) console.connection->from_all(0);
    return code;
  }

  // All that an evaluation does but its runs is done here, before the first step, so that it cannot fail at the end.
  Evaluator evaluator_of(const Console& console, const Session& session, const Program& program) {
    SessionOptions options = run_.session(console);
    options.share_states = &session;
    const int64_t there = evaluated_->count().value_or(0);
    const int64_t batches = options_.eval_steps ? std::min<int64_t>(options_.eval_steps, there) : there;
    Evaluator evaluator{std::make_unique<Session>(program, options), std::move(*evaluated_), batches};
    Progress progress(console, "preparing evaluations");
    int64_t cursor = 0;
    for (int64_t i = 0; i < batches; ++i) {
      const data::Batch batch = evaluator.data.at(cursor);
      if (i == 0) evaluator.session->peak_bytes(batch.tensors);
      cursor = batch.next;
    }
    return evaluator;
  }

  std::string model_;
  Model written_;  // with trained parameters; has all initializers
  int steps_ = 0;
  std::unique_ptr<Checkpoints> checkpoints_;  // until the run takes it
  std::optional<TrainingData> evaluated_;     // until the evaluation takes it
  std::optional<Training> evaluation_;        // if there is one
  TrainOptions options_;
  PlanOptions plan_;
  DumpOptions dump_;
  RunOptions run_;
};

}  // namespace

std::unique_ptr<Command> make_train() {
  return std::make_unique<Train>();
}

}  // namespace tessera::cli

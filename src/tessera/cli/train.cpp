#include <algorithm>
#include <utility>

#include "tessera/cli/command.h"
#include "tessera/cli/fitting.h"
#include "tessera/cli/memory_plan.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"
#include "tessera/cli/train_options.h"
#include "tessera/cli/training_data.h"
#include "tessera/cli/training_figures.h"
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
  }

  int run(Console& console) override {
    if (dump_.list(console)) return kGood;
    options_.read_config();
    dump_.check();
    if (!options_.dry_run)
      if (std::optional<int> ended = begin(console)) return *ended;
    if (console.speaks() && !options_.dry_run)
      for (const std::string* path : {&options_.metrics, &options_.profile, &options_.memory_plan, &options_.save_final,
                                      &options_.save_average, &options_.emit})
        if (!path->empty()) require_writable(*path);

    Model model = load_model(console, model_);
    Plan plan = plan_.plan(model, console, true);
    if (!plan.states.empty())
      wrong_training(
          "the plan pairs the states of a step ('states'), which tessera train makes itself; leave them out");
    Training training = options_.training(plan.dtype ? std::string(name_of(*plan.dtype)) : "");
    plan.dtype.reset();
    if (!options_.save_average.empty() && training.average == 0)
      wrong_training("--save-average needs moving averages; give their decay, as --average 0.999");
    const bool trains = !options_.dry_run && (options_.emit.empty() || options_.steps > 0 || !options_.data.empty());
    std::optional<TrainingData> data;
    if (trains || (options_.dry_run && !options_.data.empty())) {
      const Progress progress(console, "reading data");
      data.emplace(options_, model, training);
      if (trains) steps_ = data->steps(options_.steps);
      evaluated_ = TrainingData::for_evaluation(options_, model, training);
      if (options_.resume && options_.checkpoints.empty())
        wrong_training("--resume needs the folder of checkpoints; give --checkpoints DIR");
      plan_.add_sizes(plan, model.inputs(), data->at(0).tensors);
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
    const TrainingStep step = [&] {
      Progress progress(console, "differentiating");
      return training_step(model, training);
    }();
    for (const std::string& note : step.notes) console.note("note: " + note);
    if (!options_.emit.empty() && !options_.dry_run && console.speaks()) {
      step.write(options_.emit);
      console.note("wrote " + options_.emit);
    }
    if (!options_.dry_run && !trains) return kGood;
    if (evaluated_) compile_evaluation(console, model, training, plan);
    if (options_.dry_run) return show_plan(console, model, training, step, plan);
    return train(console, model, training, step, plan, *data);
  }

 private:
  // Starts ranks if they are processes that are to be spawned, and waits for them.
  std::optional<int> begin(Console& console) {
    const StopSignal stop(StopSignal::Of::spawned_ranks);
    return run_.begin(console, "train");
  }

  void compile_evaluation(const Console& console, const Model& model, const Training& training, const Plan& plan) {
    const Progress progress(console, "compiling the evaluation");
    Plan forward = plan;
    forward.recompute.clear();
    forward.keep_gathered.clear();
    evaluation_ = compile(evaluation(model, training), plan_.mesh(plan), forward, {{}, {}, plan_.topology()});
    evaluation_bytes_ = evaluation_->figures(0).peak_bytes;
    for (const StateInfo& state : evaluation_->states())
      if (state.changes) evaluation_bytes_ -= state.bytes;  // which it shares
  }

  // The limit is that of a process for all of its ranks; of a plan, that of each rank.
  Program compiled(Console& console, const Model& model, const Training& training, const TrainingStep& step,
                   const Plan& plan) {
    const Mesh mesh = plan_.mesh(plan);
    CompileOptions compiling{{}, dump_.observer(console), plan_.topology()};
    compiling.run = run_.planned(console, !options_.dry_run);
    compiling.run.checkpoints = !options_.checkpoints.empty();
    compiling.memory_limit = run_.memory.bytes();
    if (!options_.dry_run) {
      const int here = console.connection ? console.connection->launch().local_size : 1;  // processes
      if (compiling.memory_limit == 0) compiling.memory_limit = machine_memory() / static_cast<size_t>(here);
      if (!console.connection) compiling.memory_limit /= static_cast<size_t>(mesh.size());
    }
    const auto beside = static_cast<size_t>(evaluation_bytes_);
    if (compiling.memory_limit > 0)
      compiling.memory_limit = compiling.memory_limit > beside ? compiling.memory_limit - beside : 1;
    try {
      Progress progress(console, "compiling");
      return compile(step.model, mesh, plan, compiling);
    } catch (const Error& error) {
      if (!std::string_view(error.what()).starts_with("[memory]")) throw;
      Progress progress(console, "looking for a change that fits");
      constexpr size_t kStage = std::string_view("[memory] ").size();
      const std::string taken =
          beside == 0 ? ""
                      : ", since evaluations take " + bytes_text(static_cast<double>(evaluation_bytes_)) + " beside it";
      throw Error(error.kind(), "memory",
                  error.what() + kStage + taken + change_that_fits({model, training, mesh, plan, compiling}));
    }
  }

  // What rank 0 holds, whose shards are the largest, and what it communicates.
  int show_plan(Console& console, const Model& model, const Training& training, const TrainingStep& step,
                const Plan& plan) {
    const Program program = compiled(console, model, training, step, plan);
    Progress progress(console, "planning memory");
    const MemoryClasses memory(step, program, {program.figures(0).peak_bytes}, evaluation_bytes_);
    progress.end();
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
    const Program program = compiled(console, model, training, step, plan);
    const Tensors inputs = data.at(data.cursor()).tensors;
    SessionOptions session_options = run_.session(console);
    session_options.profile = !options_.profile.empty();
    session_options.checkpoints = !options_.checkpoints.empty();
    Progress progress(console, "loading weights");
    Session session(program, session_options);
    const MemoryClasses memory(step, program, session.peak_bytes(inputs), evaluation_bytes_);
    progress.end();
    console.note(program.summary());
    console.note(memory_line(step, program, memory, session.threads_per_rank()));
    dump_.machine(console, program, {}, session_options);
    if (!options_.memory_plan.empty() && console.speaks()) write_memory_plan(program, 0, options_.memory_plan);
    const std::optional<Evaluator> evaluator = evaluator_of(console, session);

    TrainingRun run(
        {console, options_, model, training, step, program, run_.session(console), session, data, memory, steps_});
    run.begin();
    run.train(stop, evaluator);
    run.save_results();
    if (console.speaks() && console.json) {
      Json object = plan_json(model_, step, program, memory);
      run.add_to(object);
      dump_.add_to(object);
      console.emit(object);
    }
    if (run.was_stopped())
      console.warn("stopped by a signal after step " + std::to_string(run.steps_made()) +
                   (options_.checkpoints.empty() ? "" : "; --resume goes on from there"));
    // Some launchers end all ranks when one has left with another code than 0.
    if (console.connection) console.connection->from_all(0);
    return run.was_stopped() ? kStopped : kGood;
  }

  std::optional<Evaluator> evaluator_of(const Console& console, const Session& session) {
    if (!evaluation_) return std::nullopt;
    SessionOptions options = run_.session(console);
    options.share_states = &session;
    const int64_t there = evaluated_->count().value_or(0);
    const int64_t batches = options_.eval_steps ? std::min<int64_t>(options_.eval_steps, there) : there;
    return Evaluator{std::make_unique<Session>(*evaluation_, options), std::move(*evaluated_), batches};
  }

  std::string model_;
  int steps_ = 0;
  std::optional<TrainingData> evaluated_;  // until the evaluation takes it
  std::optional<Program> evaluation_;
  int64_t evaluation_bytes_ = 0;  // that a rank needs for it beside the step and the states
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

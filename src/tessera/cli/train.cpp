#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <map>
#include <thread>
#include <tuple>
#include <utility>

#include "tessera/cli/command.h"
#include "tessera/cli/fitting.h"
#include "tessera/cli/interrupt.h"
#include "tessera/cli/latency.h"
#include "tessera/cli/options.h"
#include "tessera/cli/progress.h"
#include "tessera/cli/train_options.h"
#include "tessera/cli/training_data.h"
#include "tessera/io/safetensors.h"
#include "tessera/ir/pages.h"
#include "tessera/profile.h"

namespace tessera::cli {
namespace {

double number_of(const Tensors& outputs, const std::string& name) {
  return static_cast<double>(outputs.at(name).as<float>()[0]);
}

/// While it lives, SIGTERM asks for an end after the step instead of ending the process; in a process that has started
/// ranks, it asks these.
class StopSignal {
 public:
  enum class Of { this_process, spawned_ranks };
  explicit StopSignal(Of whom) {
    take_signals([this, whom](int signal) {
      if (signal != SIGTERM || (whom == Of::spawned_ranks && !signal_spawned(signal))) return false;
      asked_ = true;
      return true;
    });
  }
  ~StopSignal() { take_signals(nullptr); }
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  bool asked() const { return asked_; }

 private:
  std::atomic<bool> asked_ = false;
};

/// What one step has shown.
struct StepFigures {
  double loss = 0, norm = 0, rate = 0, seconds = 0;
};

class Train : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("model", model_, "an ONNX file: the forward model, with its parameters")->required();
    options_.declare(app);
    plan_.declare(app);
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
      for (const std::string* path : {&options_.metrics, &options_.save_final, &options_.emit})
        if (!path->empty()) require_writable(*path);

    const Model model = Model::load(model_);
    Plan plan = plan_.plan(model);
    if (!plan.states.empty()) wrong_training("--state pairs the states of a step; tessera train makes them itself");
    Training training = options_.training(plan.dtype ? std::string(name_of(*plan.dtype)) : "");
    plan.dtype.reset();
    const bool trains = !options_.dry_run && (options_.emit.empty() || options_.steps > 0 || !options_.data.empty());
    std::optional<TrainingData> data;
    if (trains || (options_.dry_run && !options_.data.empty())) {
      data.emplace(options_, model, training.labels);
      if (trains) steps_ = data->steps(options_.steps);
      evaluated_ = TrainingData::for_evaluation(options_, model, training.labels);
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
    if (options_.dry_run) return show_plan(console, model, training, step, plan);
    if (!trains) return kGood;
    return train(console, model, training, step, plan, *data);
  }

 private:
  // Starts ranks if they are processes that are to be spawned, and waits for them.
  std::optional<int> begin(Console& console) {
    const StopSignal stop(StopSignal::Of::spawned_ranks);
    const std::optional<int> ended = run_.begin(console, "train");
    return ended == kGood && stop.asked() ? kStopped : ended;
  }

  // The limit is that of a process for all of its ranks; of a plan, that of each rank.
  Program compiled(Console& console, const Model& model, const Training& training, const TrainingStep& step,
                   const Plan& plan) {
    const Mesh mesh = plan_.mesh(plan);
    CompileOptions compiling{{}, dump_.observer(console), plan_.topology()};
    compiling.memory_limit = run_.memory.bytes();
    if (!options_.dry_run) {
      if (compiling.memory_limit == 0) compiling.memory_limit = machine_memory();
      if (!console.connection) compiling.memory_limit /= static_cast<size_t>(mesh.size());
    }
    try {
      Progress progress(console, "compiling");
      return compile(step.model, mesh, plan, compiling);
    } catch (const Error& error) {
      if (!std::string_view(error.what()).starts_with("[memory]")) throw;
      Progress progress(console, "looking for a change that fits");
      constexpr size_t kStage = std::string_view("[memory] ").size();
      throw Error(error.kind(), "memory",
                  error.what() + kStage + change_that_fits({model, training, mesh, plan, compiling}));
    }
  }

  // What rank 0 holds, whose shards are the largest, and what it communicates.
  int show_plan(Console& console, const Model& model, const Training& training, const TrainingStep& step,
                const Plan& plan) {
    const Program program = compiled(console, model, training, step, plan);
    const std::vector<int64_t> peaks = {program.figures(0).peak_bytes};
    console.note(program.summary());
    console.say(memory_line(step, program, peaks, std::nullopt));
    dump_.machine(console, program, {}, run_.session(console));
    if (!console.json) {
      print_collectives(console, program.summary());
      return kGood;
    }
    Json object = plan_json(step, program, peaks);
    dump_.add_to(object);
    console.emit(object);
    return kGood;
  }

  int train(Console& console, const Model& model, const Training& training, const TrainingStep& step, const Plan& plan,
            TrainingData& data) {
    const Program program = compiled(console, model, training, step, plan);
    Tensors inputs = data.at(0).tensors;
    Session session = [&] {
      Progress progress(console, "loading");
      return Session(program, run_.session(console));
    }();
    const std::vector<int64_t> peaks = session.peak_bytes(inputs);
    console.note(program.summary());
    console.note(memory_line(step, program, peaks, session.threads_per_rank()));
    dump_.machine(console, program, {}, run_.session(console));

    const std::optional<Evaluation> evaluation = evaluation_of(console, model, training, plan, session);
    Run run{console, model, step, program, session, data, peaks};
    run.steps = steps_;
    if (!options_.checkpoints.empty()) run.checkpoints.emplace(options_.checkpoints, options_.keep);
    resume(run);
    if (!options_.metrics.empty() && console.speaks()) {
      run.metrics = std::fopen(options_.metrics.c_str(), options_.resume ? "a" : "w");
      if (!run.metrics) wrong_training("'" + options_.metrics + "' cannot be written");
    }
    const Speed speed(program, training.compute, !options_.metrics.empty(), peaks.size());
    const StopSignal stop(StopSignal::Of::this_process);
    bool stopped = false;
    for (int i = run.first; i < run.steps && !stopped; ++i) {
      const data::Batch batch = data.next();
      const Clock::time_point start = Clock::now();
      const Tensors outputs = session.run(batch.tensors);
      StepFigures figures;
      figures.seconds = milliseconds_since(start) * 1e-3;
      if (console.speaks()) {
        figures.loss = number_of(outputs, "loss");
        figures.norm = number_of(outputs, "grad_norm");
        figures.rate = number_of(outputs, "learning_rate");
      }
      run.all.push_back(figures);
      if (run.metrics) write_metrics(run.metrics, i, figures, data, speed, peaks);
      show_step(console, i, run.steps, figures, data, speed);
      enum { goes_on, stops, diverged };
      const int64_t next = agreed(console, is_lost(figures, training) ? diverged : stop.asked() ? stops : goes_on);
      if (next == diverged) {
        if (run.checkpoints) warn_of(console, run.checkpoints->finish());
        throw Error(ErrorKind::running, "train", not_finite(run, i, figures));
      }
      stopped = next == stops;
      const bool last = stopped || i + 1 == run.steps;
      if (run.checkpoints && (last || (options_.save_every && (i + 1) % options_.save_every == 0))) save(run, i + 1);
      if (evaluation && !stopped && (last || (options_.eval_every && (i + 1) % options_.eval_every == 0)))
        run.evaluations.emplace_back(i + 1, evaluate(console, *evaluation, i + 1));
    }
    if (run.checkpoints) warn_of(console, run.checkpoints->finish());
    if (run.metrics) std::fclose(std::exchange(run.metrics, nullptr));
    if (!options_.save_final.empty()) save_final(run);
    if (console.speaks() && console.json) emit(run);
    if (stopped) {
      console.warn("stopped by SIGTERM after step " + std::to_string(run.first + static_cast<int>(run.all.size())) +
                   (run.checkpoints ? "; --resume goes on from there" : ""));
      return is_spawned(console) ? kGood : kStopped;  // whoever started the ranks says it
    }
    return kGood;
  }

  static bool is_spawned(const Console& console) {
    return console.connection && console.connection->launch().engine == "processes";
  }

  /// A training run under way.
  struct Run {
    const Console& console;
    const Model& model;
    const TrainingStep& step;
    const Program& program;
    Session& session;
    TrainingData& data;
    const std::vector<int64_t>& peaks;
    int first = 0, steps = 0;
    std::optional<Checkpoints> checkpoints;
    std::FILE* metrics = nullptr;
    std::vector<StepFigures> all;
    std::vector<std::pair<int, double>> evaluations;
  };

  struct Evaluation {
    std::unique_ptr<Session> session;
    TrainingData data;
    int64_t batches = 0;
  };

  std::optional<Evaluation> evaluation_of(const Console& console, const Model& model, const Training& training,
                                          const Plan& plan, const Session& session) {
    if (!evaluated_) return std::nullopt;
    const Program program = compile(evaluation(model, training), plan_.mesh(plan), plan, {{}, {}, plan_.topology()});
    SessionOptions options = run_.session(console);
    options.share_states = &session;
    const int64_t there = evaluated_->count().value_or(0);
    const int64_t batches = options_.eval_steps ? std::min<int64_t>(options_.eval_steps, there) : there;
    return Evaluation{std::make_unique<Session>(program, options), std::move(*evaluated_), batches};
  }

  // The loss over all labels of the evaluation's batches together.
  double evaluate(const Console& console, const Evaluation& evaluation, int step) {
    double sum = 0, counted = 0;
    int64_t cursor = 0;
    for (int64_t i = 0; i < evaluation.batches; ++i) {
      const data::Batch batch = evaluation.data.at(cursor);
      cursor = batch.next;
      const Tensors outputs = evaluation.session->run(batch.tensors);
      if (!console.speaks()) continue;
      sum += number_of(outputs, "loss") * number_of(outputs, "counted");
      counted += number_of(outputs, "counted");
    }
    const double loss = counted > 0 ? sum / counted : 0;
    char text[80];
    std::snprintf(text, sizeof text, "evaluation after step %d: loss %.4f", step, loss);
    console.note(text);
    return loss;
  }

  void resume(Run& run) {
    if (!options_.resume) return;
    std::vector<std::string> passed_over;
    const auto latest = Checkpoints::latest(options_.checkpoints, &passed_over);
    for (const std::string& why : passed_over) run.console.warn(why);
    if (!latest) {
      run.console.note("there is no checkpoint in " + options_.checkpoints + " yet; training begins at step 0");
      return;
    }
    const CheckpointFacts facts = Checkpoints::load(run.session, *latest);
    run.first = static_cast<int>(facts.step);
    if (run.first >= run.steps)
      wrong_training(latest->string() + " has made all " + std::to_string(run.steps) +
                     " steps; give a larger --steps to train on");
    if (const auto cursor = facts.numbers.find("cursor"); cursor != facts.numbers.end()) run.data.seek(cursor->second);
    run.console.note("goes on from " + latest->string());
  }

  void save(Run& run, int step) {
    CheckpointFacts facts;
    facts.step = step;
    facts.numbers["cursor"] = run.data.cursor();
    facts.numbers["seed"] = static_cast<int64_t>(options_.seed);
    warn_of(run.console, run.checkpoints->save(run.session, facts));
  }

  static void warn_of(const Console& console, const std::string& problem) {
    if (!problem.empty()) console.warn("the checkpoint: " + problem + "; training goes on");
  }

  void save_final(const Run& run) {
    const Tensors states = run.session.states();
    if (!run.console.speaks()) return;
    Tensors parameters;
    for (const std::string& name : run.step.parameters) parameters.emplace(name, states.at(name));
    if (options_.save_final.ends_with(".safetensors"))
      save_safetensors(options_.save_final, {parameters.begin(), parameters.end()});
    else if (options_.save_final.ends_with(".onnx"))
      write_trained(run.model, parameters, options_.save_final);
    else
      write_tensors(options_.save_final, parameters);
    run.console.note("wrote " + options_.save_final);
  }

  static int64_t agreed(const Console& console, int64_t value) {
    return console.connection ? console.connection->from_first(value) : value;
  }

  // A norm that is not finite has spoilt the parameters, unless a dynamic scale keeps them from stepping.
  static bool is_lost(const StepFigures& figures, const Training& training) {
    return !std::isfinite(figures.loss) ||
           (!std::isfinite(figures.norm) && !training.loss_scale.starts_with("dynamic"));
  }

  static std::string not_finite(const Run& run, int step, const StepFigures& figures) {
    const bool in_loss = !std::isfinite(figures.loss);
    return (in_loss ? "the loss" : "the norm of the gradients") + (" of step " + std::to_string(step + 1)) + " is " +
           std::to_string(in_loss ? figures.loss : figures.norm) +
           "; lower the learning rate, or clip gradients (--clip 1)" +
           (run.checkpoints ? "; the last checkpoint stays as it is" : "");
  }

  /// Floating-point operations of a step, against what the machine can do.
  struct Speed {
    Speed(const Program& program, DType dtype, bool wanted, size_t ranks) {
      if (!wanted) return;
      for (size_t r = 0; r < ranks; ++r) flops += static_cast<double>(program.figures(static_cast<int64_t>(r)).flops);
      peak = measure_peak(dtype, static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))).flops;
    }
    double utilization(double seconds) const { return peak > 0 && seconds > 0 ? flops / seconds / peak : 0; }

    double flops = 0, peak = 0;
  };

  void write_metrics(std::FILE* file, int step, const StepFigures& figures, const TrainingData& data,
                     const Speed& speed, const std::vector<int64_t>& peaks) const {
    const Json line = {{"step", step},
                       {"loss", figures.loss},
                       {"grad_norm", figures.norm},
                       {"lr", figures.rate},
                       {"tokens_per_s", static_cast<double>(data.labels_per_step()) / figures.seconds},
                       {"mfu", speed.utilization(figures.seconds)},
                       {"peak_bytes", *std::max_element(peaks.begin(), peaks.end())}};
    std::fprintf(file, "%s\n", line.dump().c_str());
    std::fflush(file);
  }

  void show_step(const Console& console, int step, int steps, const StepFigures& figures, const TrainingData& data,
                 const Speed& speed) {
    // Every line at first, then one in ten seconds.
    const Clock::time_point now = Clock::now();
    constexpr int kFirst = 20;
    if (step >= kFirst && step != steps - 1 && now - shown_ < std::chrono::seconds(10)) return;
    shown_ = now;
    char text[160];
    std::snprintf(text, sizeof text, "step %d/%d  loss %.4f  gradient %.3g  rate %.3g  ", step + 1, steps, figures.loss,
                  figures.norm, figures.rate);
    std::string line = text + count_text(static_cast<double>(data.labels_per_step()) / figures.seconds) +
                       " tokens/s  " + time_text(figures.seconds);
    if (speed.peak > 0) {
      std::snprintf(text, sizeof text, "  MFU %.0f %%", 100 * speed.utilization(figures.seconds));
      line += text;
    }
    console.note(line);
    std::fflush(stdout);  // a log is read while the run goes on
  }

  /// Bytes of the rank that needs most, by what they hold.
  struct MemoryClasses {
    int64_t parameters = 0, optimizer = 0, other_states = 0, activations = 0, gradients = 0, buffers = 0;
  };

  static MemoryClasses classes_of(const TrainingStep& step, const Program& program, const std::vector<int64_t>& peaks) {
    MemoryClasses classes;
    std::map<std::string_view, int64_t*> class_of;
    for (const std::string& name : step.parameters) class_of.emplace(name, &classes.parameters);
    for (const std::string& name : step.optimizer) class_of.emplace(name, &classes.optimizer);
    for (const StateInfo& state : program.states()) {
      const auto found = class_of.find(state.tensor.name);
      (found == class_of.end() ? classes.other_states : *found->second) += state.bytes;
    }
    const RankFigures figures = program.figures(0);
    classes.activations = figures.activation_bytes;
    classes.gradients = figures.gradient_bytes;
    classes.buffers = *std::max_element(peaks.begin(), peaks.end()) - classes.parameters - classes.optimizer -
                      classes.other_states - classes.activations - classes.gradients;
    return classes;
  }

  static std::string memory_line(const TrainingStep& step, const Program& program, const std::vector<int64_t>& peaks,
                                 std::optional<int> threads) {
    const MemoryClasses classes = classes_of(step, program, peaks);
    const auto text = [](int64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
    const std::string each =
        threads ? ", " + std::to_string(*threads) + (*threads == 1 ? " thread" : " threads") + " each" : "";
    return "mesh " + mesh_text(program.mesh()) + each + "; " + std::to_string(step.parameters.size()) +
           " parameters train; at its peak a rank needs " + text(*std::max_element(peaks.begin(), peaks.end())) +
           ": parameters " + text(classes.parameters) + ", optimizer " + text(classes.optimizer) + ", gradients " +
           text(classes.gradients) + ", activations " + text(classes.activations) + ", buffers " +
           text(classes.buffers + classes.other_states);
  }

  Json plan_json(const TrainingStep& step, const Program& program, const std::vector<int64_t>& peaks) const {
    const MemoryClasses classes = classes_of(step, program, peaks);
    return {{"model", model_},
            {"mesh", mesh_json(program.mesh())},
            {"parameters", step.parameters},
            {"peak_bytes", *std::max_element(peaks.begin(), peaks.end())},
            {"memory_classes",
             {{"parameters", classes.parameters},
              {"optimizer", classes.optimizer},
              {"other_states", classes.other_states},
              {"gradients", classes.gradients},
              {"activations", classes.activations},
              {"buffers", classes.buffers}}},
            {"collectives", collectives_json(program.summary())},
            {"reshards", reshards_json(program.summary().reshards)},
            {"notes", program.summary().notes},
            {"warnings", program.summary().warnings}};
  }

  void emit(const Run& run) const {
    const auto& [console, step, program, session, data, peaks] =
        std::tie(run.console, run.step, run.program, run.session, run.data, run.peaks);
    const std::vector<StepFigures>& all = run.all;
    Json losses = Json::array(), norms = Json::array(), ranks = Json::array();
    double best = 0;
    for (const StepFigures& figures : all) {
      losses.push_back(figures.loss);
      norms.push_back(figures.norm);
      best = best == 0 ? figures.seconds : std::min(best, figures.seconds);
    }
    for (size_t r = 0; r < peaks.size(); ++r)
      ranks.push_back({{"rank", r},
                       {"peak_bytes", peaks[r]},
                       {"planned_bytes", program.peak_bytes(static_cast<int64_t>(r), program.summary().shapes)}});
    Json object = plan_json(step, program, peaks);
    object.update({{"threads_per_rank", session.threads_per_rank()},
                   {"steps", all.size()},
                   {"seconds", best},
                   {"losses", losses},
                   {"grad_norms", norms},
                   {"ranks", ranks}});
    if (run.first > 0) object["resumed_at"] = run.first;
    for (const auto& [at, loss] : run.evaluations) object["evaluations"].push_back({{"step", at}, {"loss", loss}});
    dump_.add_to(object);
    console.emit(object);
  }

  std::string model_;
  int steps_ = 0;
  Clock::time_point shown_;                // when a step was shown last
  std::optional<TrainingData> evaluated_;  // until the evaluation takes it
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

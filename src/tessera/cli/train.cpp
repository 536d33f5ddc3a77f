#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>

#include "tessera/cli/command.h"
#include "tessera/cli/latency.h"
#include "tessera/cli/options.h"
#include "tessera/cli/progress.h"
#include "tessera/cli/train_options.h"
#include "tessera/cli/training_data.h"
#include "tessera/profile.h"

namespace tessera::cli {
namespace {

double number_of(const Tensors& outputs, const std::string& name) {
  return static_cast<double>(outputs.at(name).as<float>()[0]);
}

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
    if (std::optional<int> ended = run_.begin(console, "train")) return *ended;
    if (console.speaks())
      for (const std::string* path : {&options_.metrics, &options_.save_final, &options_.emit})
        if (!path->empty()) require_writable(*path);

    const Model model = Model::load(model_);
    Plan plan = plan_.plan(model);
    if (!plan.states.empty()) wrong_training("--state pairs the states of a step; tessera train makes them itself");
    Training training = options_.training(plan.dtype ? std::string(name_of(*plan.dtype)) : "");
    plan.dtype.reset();
    const bool trains = options_.emit.empty() || options_.steps > 0 || !options_.data.empty();
    std::optional<TrainingData> data;
    if (trains) {
      data.emplace(options_, model, training.labels);
      plan_.add_sizes(plan, model.inputs(), data->at(0).tensors);
    }
    training.sizes = plan.shapes;
    plan.shapes.clear();  // the step has these sizes only
    const TrainingStep step = [&] {
      Progress progress(console, "differentiating");
      return training_step(model, training);
    }();
    for (const std::string& note : step.notes) console.note("note: " + note);
    if (!options_.emit.empty() && console.speaks()) {
      step.write(options_.emit);
      console.note("wrote " + options_.emit);
    }
    if (!trains) return kGood;
    return train(console, step, plan, *data);
  }

 private:
  int train(Console& console, const TrainingStep& step, const Plan& plan, TrainingData& data) {
    const Mesh mesh = plan_.mesh(plan);
    CompileOptions compiling{{}, dump_.observer(console), plan_.topology()};
    compiling.memory_limit = run_.memory.bytes();
    const Program program = [&] {
      Progress progress(console, "compiling");
      return compile(step.model, mesh, plan, compiling);
    }();
    Tensors inputs = data.at(0).tensors;
    Session session = [&] {
      Progress progress(console, "loading");
      return Session(program, run_.session(console));
    }();
    const std::vector<int64_t> peaks = session.peak_bytes(inputs);
    console.note(program.summary());
    show_memory(console, step, program, peaks, session.threads_per_rank());

    std::FILE* metrics = nullptr;
    if (!options_.metrics.empty() && console.speaks()) {
      metrics = std::fopen(options_.metrics.c_str(), "w");
      if (!metrics) wrong_training("'" + options_.metrics + "' cannot be written");
    }
    const int steps = data.steps(options_.steps);
    const Speed speed(program, training_dtype(plan), !options_.metrics.empty(), peaks.size());
    std::vector<StepFigures> all;
    for (int i = 0; i < steps; ++i) {
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
      all.push_back(figures);
      if (metrics) write_metrics(metrics, i, figures, data, speed, peaks);
      show_step(console, i, steps, figures, data, speed);
      if (agreed(console, std::isfinite(figures.loss) ? 0 : 1) != 0) {
        if (metrics) std::fclose(metrics);
        throw Error(ErrorKind::running, "train", not_finite(i, figures));
      }
    }
    if (metrics) std::fclose(metrics);
    const Tensors states = options_.save_final.empty() ? Tensors{} : session.states();
    if (!console.speaks()) return kGood;
    if (!options_.save_final.empty()) {
      Tensors parameters;
      for (const std::string& name : step.parameters) parameters.emplace(name, states.at(name));
      write_tensors(options_.save_final, parameters);
      console.note("wrote " + options_.save_final);
    }
    if (console.json) emit(console, step, program, session, peaks, all);
    return kGood;
  }

  static int64_t agreed(const Console& console, int64_t value) {
    return console.connection ? console.connection->from_first(value) : value;
  }

  static std::string not_finite(int step, const StepFigures& figures) {
    return "the loss of step " + std::to_string(step) + " is " + std::to_string(figures.loss) +
           "; lower the learning rate, clip gradients (--clip 1), or look for the tensor that went bad first with "
           "tessera verify on that step's model (--emit)";
  }

  static DType training_dtype(const Plan&) { return DType::float32; }

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
                 const Speed& speed) const {
    const int every = std::max(1, steps / 20);
    if (step % every != 0 && step != steps - 1) return;
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
  }

  /// Bytes of the rank that needs most, by what they hold.
  struct MemoryClasses {
    int64_t parameters = 0, optimizer = 0, other_states = 0, rest = 0;
  };

  static MemoryClasses classes_of(const TrainingStep& step, const Program& program, const std::vector<int64_t>& peaks) {
    MemoryClasses classes;
    const auto holds = [](const std::vector<std::string>& names, const std::string& name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    for (const StateInfo& state : program.states()) {
      int64_t& bytes = holds(step.parameters, state.tensor.name)  ? classes.parameters
                       : holds(step.optimizer, state.tensor.name) ? classes.optimizer
                                                                  : classes.other_states;
      bytes += state.bytes;
    }
    classes.rest =
        *std::max_element(peaks.begin(), peaks.end()) - classes.parameters - classes.optimizer - classes.other_states;
    return classes;
  }

  void show_memory(const Console& console, const TrainingStep& step, const Program& program,
                   const std::vector<int64_t>& peaks, int threads) const {
    const MemoryClasses classes = classes_of(step, program, peaks);
    const auto text = [](int64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
    console.note("mesh " + mesh_text(program.mesh()) + ", " + std::to_string(threads) +
                 (threads == 1 ? " thread" : " threads") + " each; " + std::to_string(step.parameters.size()) +
                 " parameters train; at its peak a rank needs " + text(*std::max_element(peaks.begin(), peaks.end())) +
                 ": parameters " + text(classes.parameters) + ", optimizer " + text(classes.optimizer) +
                 ", activations, gradients and buffers " + text(classes.rest + classes.other_states));
  }

  void emit(const Console& console, const TrainingStep& step, const Program& program, const Session& session,
            const std::vector<int64_t>& peaks, const std::vector<StepFigures>& all) const {
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
    const MemoryClasses classes = classes_of(step, program, peaks);
    Json object = {{"model", model_},
                   {"mesh", mesh_json(program.mesh())},
                   {"threads_per_rank", session.threads_per_rank()},
                   {"steps", all.size()},
                   {"seconds", best},
                   {"losses", losses},
                   {"grad_norms", norms},
                   {"parameters", step.parameters},
                   {"ranks", ranks},
                   {"memory_classes",
                    {{"parameters", classes.parameters},
                     {"optimizer", classes.optimizer},
                     {"other_states", classes.other_states},
                     {"activations_gradients_buffers", classes.rest}}},
                   {"collectives", collectives_json(program.summary())},
                   {"reshards", reshards_json(program.summary().reshards)},
                   {"notes", program.summary().notes},
                   {"warnings", program.summary().warnings}};
    dump_.add_to(object);
    console.emit(object);
  }

  std::string model_;
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

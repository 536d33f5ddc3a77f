#include <algorithm>

#include "tessera/cli/command.h"
#include "tessera/cli/help.h"
#include "tessera/cli/load_program.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"
#include "tessera/cli/time_options.h"
#include "tessera/cli/trace.h"
#include "tessera/cli/train_options.h"
#include "tessera/trainer.h"

namespace tessera::cli {
namespace {

class Simulate : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("model", model_, "an ONNX file: the forward model, also with --train")->required();
    plan_.declare(app);
    const std::vector<CLI::Option*> before = app.get_options();
    training_.declare_training(app);
    app.remove_option(app.get_option("--train"));   // of tensors that train, too
    app.remove_option(app.get_option("--config"));  // has options of a whole training run
    const std::vector<CLI::Option*> with_training = app.get_options();
    CLI::Option* train = app.add_flag("--train", trains_, "simulate a training step of the model");
    for (CLI::Option* option : with_training)
      if (std::find(before.begin(), before.end(), option) == before.end()) option->needs(train);
    time_.declare(app);
    time_.declare_changes(app);
    app.add_option("--trace", trace_, "a file for a trace with a track for each class of ranks, which Perfetto shows");
    app.add_flag("--no-overlap", no_overlap_, "wait for each communication where it starts");
    declare_paths(app, {{"model", PathUse::reads, files_of_model}, {"--trace", PathUse::writes}});
  }

  int run(Console& console) override {
    const PredictSettings settings = [&] {
      PredictSettings asked = time_.settings(plan_.topology());
      asked.overlap = !no_overlap_;
      return asked;
    }();
    if (!trace_.empty()) require_writable(trace_);
    const Program program = compiled(console, settings);
    if (!trace_.empty()) require_writable(trace_);  // the model's files are known now
    const Forecast forecast = time_.predict(console, program, settings, false);
    const int64_t peak = program.figures(largest_rank(program)).peak_bytes;
    if (!trace_.empty()) {
      Trace trace;
      trace.add(forecast.prediction.profile, 0);
      trace.write(trace_);
    }
    if (console.json) {
      Json object = {{"model", model_},
                     {"mesh", mesh_json(program.mesh())},
                     {"peak_bytes", peak},
                     {"predicted", forecast_json(forecast)}};
      console.emit(object);
      return kGood;
    }
    console.note(program.summary());
    console.say("mesh " + mesh_text(program.mesh()) + ", " + bytes_text(static_cast<double>(peak)) +
                " on a rank at its peak" + memory_text(settings.machine, peak));
    print_forecast(console, forecast);
    return kGood;
  }

 private:
  static std::string memory_text(const MachineModel& machine, int64_t peak) {
    if (machine.memory <= 0 || static_cast<double>(peak) <= machine.memory) return "";
    return ", which is more than the " + bytes_text(machine.memory) + " of " + machine.name;
  }

  Program compiled(Console& console, const PredictSettings& settings) {
    Model model = load_model(console, model_);
    Plan plan = plan_.plan(model, console, trains_);
    const Mesh mesh = plan_.mesh(plan);
    CompileOptions options;
    options.topology = settings.links(mesh);
    options.run.overlap = settings.overlap;
    std::string note;
    plan.shapes = model.complete(plan.shapes, &note);
    if (!note.empty()) console.note("note: " + note);
    const Progress progress(console, "compiling");
    if (!trains_) {
      return compile(model.for_program(plan.shapes), mesh, plan, options);
    }
    Training training = training_.training(plan);
    plan.dtype.reset();
    training.sizes = plan.shapes;
    plan.shapes.clear();  // the step has these sizes only
    const TrainingStep step = training_step(model, training);
    TrainingSetup setup;
    setup.mesh = mesh;
    setup.plan = plan;
    setup.compile = options;
    return compile_training(model, training, step, setup).program;
  }

  std::string model_, trace_;
  bool trains_ = false, no_overlap_ = false;
  PlanOptions plan_;
  TrainOptions training_;
  TimeOptions time_;
};

}  // namespace

std::unique_ptr<Command> make_simulate() {
  return std::make_unique<Simulate>();
}

}  // namespace tessera::cli

#include "tessera/cli/step_options.h"

#include <algorithm>

#include "tessera/cli/load_program.h"
#include "tessera/cli/models.h"
#include "tessera/cli/path_options.h"
#include "tessera/trainer.h"

namespace tessera::cli {

void StepOptions::declare(CLI::App& app, const char* train_help) {
  app.add_option("model", model, "an ONNX file: the forward model, also with --train")->required();
  plan.declare(app);
  const std::vector<CLI::Option*> before = app.get_options();
  training.declare_training(app);
  app.remove_option(app.get_option("--train"));   // of tensors that train, too
  app.remove_option(app.get_option("--config"));  // has options of a whole training run
  const std::vector<CLI::Option*> with_training = app.get_options();
  CLI::Option* train = app.add_flag("--train", trains, train_help);
  for (CLI::Option* option : with_training)
    if (std::find(before.begin(), before.end(), option) == before.end()) option->needs(train);
  declare_paths(app, {{"model", PathUse::reads, files_of_model}});
}

AskedStep StepOptions::asked(const Console& console) {
  AskedStep asked;
  asked.model = load_model(console, model);
  asked.plan = plan.plan(asked.model, console, trains);
  asked.stated = asked.plan.shapes;
  asked.micro_batches = asked.plan.micro_batches;
  if (!trains) asked.model = in_micro_batches(asked.model, asked.plan, console);
  asked.plan.shapes = asked.model.complete(asked.plan.shapes, &asked.note);
  if (!asked.note.empty()) asked.note = "note: " + asked.note;
  if (!trains) return asked;
  asked.training = training.training(asked.plan);
  return asked;
}

Program AskedStep::compiled(const Mesh& mesh, const CompileOptions& options) const {
  if (!training) {
    Tensors none;
    return compile(model.for_program(plan.shapes, none), mesh, plan, options);
  }
  Training sized = *training;
  sized.sizes = plan.shapes;
  TrainingSetup setup;
  setup.mesh = mesh;
  setup.plan = plan;
  setup.plan.dtype.reset();
  setup.plan.shapes.clear();  // the step has these sizes only
  setup.compile = options;
  return compile_training(model, sized, training_step(model, sized), setup).program;
}

}  // namespace tessera::cli

#include "tessera/check.h"
#include "tessera/cli/command.h"
#include "tessera/cli/help.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/progress.h"

namespace tessera::cli {
namespace {

// Both write a model with more device annotations than it had.
void say_written(const Console& console, const Model& model, const std::string& configuration,
                 const std::string& path) {
  if (console.json)
    console.emit({{"model", model.path().string()}, {"configuration", configuration}, {"written", path}});
  else
    console.note("wrote " + path + ", annotated for the device configuration '" + configuration + "'");
}

class Annotate : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("model", model_, "an ONNX file")->required();
    plan_.declare(app);
    under(app, Heading::output);
    app.add_option("-o,--output", output_, "the ONNX file to write")->required();
    app.add_option("--name", name_,
                   "the name of the device configuration; annotations that the model has for it are replaced")
        ->capture_default_str();
    declare_paths(app, {{"model", PathUse::reads, files_of_model}, {"--output", PathUse::writes}});
  }

  int run(Console& console) override {
    if (!plan_.configuration.empty())
      throw Error(
          ErrorKind::user, "devices",
          "tessera annotate writes annotations and follows none; leave out --configuration, or complete those of "
          "the model with tessera infer");
    if (plan_.micro_batches > 1)
      throw Error(ErrorKind::user, "devices", "annotations lay out the model as it is; leave out --micro-batches");
    const Model model = load_model(console, model_);
    require_writable(output_);
    const Plan plan = plan_.plan().over(model.plan());
    if (plan.mesh.empty())
      throw Error(ErrorKind::user, "devices", "no mesh to annotate the model for; give one, as --mesh dp=2,tp=2");
    if (plan.mesh.find('?') != std::string::npos)
      throw Error(ErrorKind::user, "devices",
                  "the mesh " + plan.mesh +
                      " is open, but annotations list devices; give all sizes, or write the plan itself into the model "
                      "with tessera shard");
    {
      Progress progress(console, "annotating");
      model.annotated(plan_.mesh(plan), plan, name_).write(output_);
    }
    say_written(console, model, name_, output_);
    return kGood;
  }

 private:
  std::string model_, output_, name_ = "tessera";
  PlanOptions plan_;
};

class Infer : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("model", model_, "an ONNX file with device annotations")->required();
    under(app, Heading::mesh);
    app.add_option("--configuration", configuration_,
                   "the device configuration for which annotations are completed; by default, all of the file")
        ->type_name("NAME");
    under(app, Heading::output);
    app.add_option("-o,--output", output_, "the ONNX file to write")->required();
    declare_paths(app, {{"model", PathUse::reads, files_of_model}, {"--output", PathUse::writes}});
  }

  int run(Console& console) override {
    Model model = load_model(console, model_);
    require_writable(output_);
    std::vector<std::string> names = model.configurations();
    if (!configuration_.empty()) names = {configuration_};
    if (names.empty()) refuse_wrong_annotations(model);
    if (names.empty())
      throw Error(ErrorKind::user, "devices",
                  model_ +
                      " has no device configuration, so that there is nothing to complete; tessera annotate "
                      "writes annotations");
    {
      Progress progress(console, "completing");
      for (const std::string& name : names) {
        for (const std::string& warning : model.configured(name).warnings) console.advise(warning);
        model = model.completed(name);
      }
      model.write(output_);
    }
    say_written(console, model, joined(names), output_);
    return kGood;
  }

 private:
  std::string model_, output_, configuration_;
};

}  // namespace

std::unique_ptr<Command> make_annotate() {
  return std::make_unique<Annotate>();
}

std::unique_ptr<Command> make_infer() {
  return std::make_unique<Infer>();
}

}  // namespace tessera::cli

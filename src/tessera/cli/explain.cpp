#include "tessera/cli/command.h"
#include "tessera/cli/load_program.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"

namespace tessera::cli {
namespace {

class Explain : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("model", model_, "an ONNX file")->required();
    app.add_option("tensor", tensor_, "the name of a tensor, as in the file")->required();
    plan_.declare(app);
    declare_paths(app, {{"model", PathUse::reads, files_of_model}});
  }

  int run(Console& console) override {
    Model model = load_model(console, model_);
    Plan plan = plan_.plan(model, console);
    Tensors none;
    model = for_program(model, plan, nullptr, none, console);
    const Topology topology = plan_.topology();
    Progress progress(console, "compiling");
    Program program = compile(model, plan_.mesh(plan), plan, {{}, nullptr, topology});
    // Rewriting may have absorbed the tensor; a program in which it stays tells its layout.
    if (!program.can_explain(tensor_)) program = compile(model, plan_.mesh(plan), plan, {{tensor_}, nullptr, topology});
    Explanation found = program.explain(tensor_);
    progress.end();
    if (console.json)
      emit(console, found);
    else
      print(console, program, found);
    return kGood;
  }

 private:
  static std::string round_text(int round) { return round == 0 ? "annotated" : "round " + std::to_string(round); }

  void print(const Console& console, const Program& program, const Explanation& found) const {
    console.note(program.summary());
    if (found.row)
      console.say(tensor_ + " is row " + std::to_string(*found.row) + " of what these parameters are stacked in");
    console.say(found.tensor.name + ": " + type_text(found.tensor) + " over " + mesh_text(program.mesh()));
    for (const Explanation::Place& place : found.places) {
      console.say("  " + place.where + ": " + place.layout);
      for (const Explanation::Axis& axis : place.axes) {
        std::string part = axis.part.empty() ? "" : " (part " + axis.part + ")";
        console.say("    dimension " + std::to_string(axis.dim) + part + " gets " + axis.axis + " from " + axis.by +
                    ", " + round_text(axis.round));
      }
      for (const Explanation::Lost& lost : place.lost)
        console.say("    dimension " + std::to_string(lost.dim) + " does not get " + lost.axis + ": " + lost.reason);
    }
    bool paid = false;
    for (const ReshardSummary& reshard : found.reshards) {
      if (!paid) console.say("it costs, per run and for rank 0:");
      paid = true;
      console.say("  " + bytes_text(static_cast<double>(reshard.bytes)) + " by " + joined(reshard.steps, " + ") +
                  ", from " + reshard.from + " to " + reshard.to + ", for " + reshard.consumer +
                  (reshard.reason.empty() ? "" : ": " + reshard.reason));
    }
    if (!paid) console.say("it costs nothing: all readers use this layout");
  }

  static void emit(const Console& console, const Explanation& found) {
    Json places = Json::array();
    for (const Explanation::Place& place : found.places) {
      Json axes = Json::array(), lost = Json::array();
      for (const Explanation::Axis& axis : place.axes)
        axes.push_back(
            {{"dim", axis.dim}, {"part", axis.part}, {"axis", axis.axis}, {"by", axis.by}, {"round", axis.round}});
      for (const Explanation::Lost& entry : place.lost)
        lost.push_back({{"dim", entry.dim}, {"axis", entry.axis}, {"reason", entry.reason}});
      places.push_back({{"where", place.where}, {"layout", place.layout}, {"axes", axes}, {"lost", lost}});
    }
    const Json tensor = port_json(found.tensor);
    Json all = {{"tensor", tensor["name"]},
                {"dtype", tensor["dtype"]},
                {"shape", tensor["shape"]},
                {"places", places},
                {"reshards", reshards_json(found.reshards)}};
    if (found.row) all["row"] = *found.row;
    console.emit(all);
  }

  std::string model_, tensor_;
  PlanOptions plan_;
};

}  // namespace

std::unique_ptr<Command> make_explain() {
  return std::make_unique<Explain>();
}

}  // namespace tessera::cli

#include "tessera/cli/command.h"
#include "tessera/cli/load_program.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"
#include "tessera/cli/time_options.h"

namespace tessera::cli {
namespace {

class Explain : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("model", model_, "an ONNX file")->required();
    app.add_option("tensor", tensor_, "the name of a tensor, as in the file")->required();
    plan_.declare(app);
    time_.declare(app);
    declare_paths(app, {{"model", PathUse::reads, files_of_model}});
  }

  int run(Console& console) override {
    Model model = load_model(console, model_);
    Plan plan = plan_.plan(model, console);
    Tensors none;
    model = in_micro_batches(for_program(model, plan, nullptr, none, console), plan, console);
    CompileOptions options;
    const Mesh mesh = plan_.mesh(plan);
    time_.choose(console, plan_.topology(), mesh, options);
    Progress progress(console, "compiling");
    Program program = compile(model, mesh, plan, options);
    if (!program.can_explain(tensor_)) {
      // Rewriting may have absorbed the tensor; a program in which it stays tells its layout.
      options.keep = {tensor_};
      program = compile(model, mesh, plan, options);
    }
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
      console.say("  " + bytes_text(static_cast<double>(reshard.bytes)) +
                  (found.in_seconds ? ", " + time_text(reshard.seconds) + "," : "") + " by " +
                  joined(reshard.steps, " + ") + ", from " + reshard.from + " to " + reshard.to + ", for " +
                  reshard.consumer + (reshard.reason.empty() ? "" : ": " + reshard.reason));
    }
    if (!paid) console.say("it costs nothing: all readers use this layout");
    print_alternatives(console, found);
  }

  static void print_alternatives(const Console& console, const Explanation& found) {
    constexpr size_t kShown = 8;
    if (found.alternatives.size() < 2) return;
    console.say(std::string("ways to make it, with all else as it is, by the ") +
                (found.in_seconds ? "seconds that moving and computing take:" : "bytes that a rank receives:"));
    Table table({"", "price", "layout", "of operands in"});
    for (size_t i = 0; i < found.alternatives.size() && i < kShown; ++i) {
      const Explanation::Alternative& each = found.alternatives[i];
      table.add({each.chosen     ? "chosen"
                 : each.disobeys ? "against an annotation"
                                 : "",
                 found.in_seconds ? time_text(each.price) : bytes_text(each.price), each.layout,
                 joined(each.operands, "; ")});
    }
    table.print(console);
    if (found.alternatives.size() > kShown)
      console.say(std::to_string(found.alternatives.size() - kShown) + " more, with higher prices");
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
    Json alternatives = Json::array();
    for (const Explanation::Alternative& each : found.alternatives)
      alternatives.push_back({{"layout", each.layout},
                              {"operands", each.operands},
                              {"chosen", each.chosen},
                              {found.in_seconds ? "seconds" : "bytes", each.price},
                              {"disobeys", each.disobeys}});
    all["alternatives"] = alternatives;
    for (size_t i = 0; found.in_seconds && i < found.reshards.size(); ++i)
      all["reshards"][i]["seconds"] = found.reshards[i].seconds;
    console.emit(all);
  }

  std::string model_, tensor_;
  PlanOptions plan_;
  TimeOptions time_;
};

}  // namespace

std::unique_ptr<Command> make_explain() {
  return std::make_unique<Explain>();
}

}  // namespace tessera::cli

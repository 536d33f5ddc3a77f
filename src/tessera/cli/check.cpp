#include "tessera/check.h"

#include "tessera/cli/command.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/progress.h"

namespace tessera::cli {
namespace {

class Check : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("program", path_, kModelHelp)->required();
    plan_.declare(app);
  }

  int run(Console& console) override {
    Program program = load(console);
    CheckReport report = [&] {
      Progress progress(console, "checking");
      return check_program(program);
    }();
    if (console.json)
      emit(console, program, report);
    else
      print(console, program, report);
    return report.good() ? kGood : kNo;
  }

 private:
  Program load(const Console& console) {
    if (Program::is_written(path_)) {
      plan_.refuse_for_written(path_);
      return Program::read(path_);
    }
    Progress progress(console, "compiling");
    const std::vector<Model> models = load_models(path_);
    if (std::optional<Program> program = join_split(models, path_, plan_, {})) {
      split_ = true;
      return *program;
    }
    Plan plan = plan_.plan(models.front());
    return compile(models.front(), plan_.mesh(plan), plan);
  }

  void print(const Console& console, const Program& program, const CheckReport& report) const {
    console.say(program.summary());
    console.say("mesh " + mesh_text(program.mesh()) + ", " + counted(report.models, "model") + ", " +
                counted(report.communications, "communication") + " in a step");
    for (const CheckFinding& finding : report.findings) console.say(finding.rule + ": " + finding.message);
    if (!report.good())
      console.say("WRONG");
    else if (split_)
      console.say(
          "good: every rank gets to its end (models that come split do not say what their values are parts of)");
    else
      console.say("good: every rank gets to its end, and every value is what it is said to be");
  }

  static std::string counted(int64_t count, const std::string& what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  }

  static void emit(const Console& console, const Program& program, const CheckReport& report) {
    Json findings = Json::array();
    for (const CheckFinding& finding : report.findings) {
      Json places = Json::array();
      for (const CheckFinding::Place& place : finding.places)
        places.push_back({{"rank", place.rank}, {"node", place.node.empty() ? Json() : Json(place.node)}});
      findings.push_back({{"rule", finding.rule}, {"message", finding.message}, {"places", places}});
    }
    console.emit({{"good", report.good()},
                  {"mesh", mesh_json(program.mesh())},
                  {"models", report.models},
                  {"communications", report.communications},
                  {"findings", findings}});
  }

  std::string path_;
  bool split_ = false;  // the models came with their communication
  PlanOptions plan_;
};

}  // namespace

std::unique_ptr<Command> make_check() {
  return std::make_unique<Check>();
}

}  // namespace tessera::cli

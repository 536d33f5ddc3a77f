#include "tessera/check.h"

#include "tessera/cli/command.h"
#include "tessera/cli/help.h"
#include "tessera/cli/load_program.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"

namespace tessera::cli {
namespace {

class Check : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("program", path_, kModelHelp)->required();
    under(app, Heading::model);
    app.add_flag("--accept", accept_,
                 "accept models that have changed since the program was written, if they can be proved");
    plan_.declare(app);
    plan_.declare_own(app);
    declare_paths(app, {{"program", PathUse::reads, files_of_model}});
  }

  int run(Console& console) override {
    if (accept_ && !Program::is_written(path_))
      throw Error(ErrorKind::user, "options",
                  "--accept is for a folder that tessera shard wrote, and '" + path_ + "' is not one; leave it out");
    if (!Program::is_written(path_)) models_ = load_models(console, path_);
    const std::vector<std::string> configurations = configurations_asked();
    if (follows_annotations()) {
      const std::vector<CheckFinding> faults = [&] {
        Progress progress(console, "checking annotations");
        return check_annotations(models_.front(), plan_.configuration);
      }();
      if (!faults.empty()) return refuse(console, faults);
    }
    if (configurations.size() < 2) {
      const auto [json, good] = look_at(console);
      if (console.json) console.emit(json);
      return good ? kGood : kNo;
    }
    bool all_good = true;
    Json reports = Json::object();
    for (const std::string& configuration : configurations) {
      plan_.configuration = configuration;
      const auto [json, good] = look_at(console);
      reports[configuration] = json;
      all_good = all_good && good;
    }
    if (console.json) console.emit({{"good", all_good}, {"configurations", reports}});
    return all_good ? kGood : kNo;
  }

 private:
  Program load(const Console& console) {
    if (Program::is_written(path_)) {
      plan_.refuse_for_written(path_);
      const Progress progress(console, "reading " + path_);
      changed_ = changed_models(path_);
      return Program::read(path_, true);
    }
    if (std::optional<Program> program = join_split(console, models_, path_, plan_, {})) {
      split_ = true;
      return *program;
    }
    Model model = models_.front();
    Plan plan = plan_.plan(model, console);
    Tensors none;
    model = in_micro_batches(for_program(model, plan, nullptr, none, console), plan, console);
    const Progress progress(console, "compiling");
    return compile(model, plan_.mesh(plan), plan);
  }

  bool follows_annotations() const {
    return models_.size() == 1 && plan_.plan().mesh.empty() && models_.front().plan().mesh.empty();
  }

  // The device configurations whose annotations are to be checked and followed.
  std::vector<std::string> configurations_asked() const {
    if (!follows_annotations()) return {};
    return plan_.configuration.empty() ? models_.front().configurations() : std::vector{plan_.configuration};
  }

  static int refuse(const Console& console, const std::vector<CheckFinding>& faults) {
    if (console.json) console.emit({{"good", false}, {"findings", findings_json(faults)}});
    say_faults(console, faults);
    return kNo;
  }

  // Proves one program.
  std::pair<Json, bool> look_at(const Console& console) {
    std::optional<Program> read;
    try {
      read = load(console);
    } catch (const Error& error) {
      if (changed_.empty() || error.kind() != ErrorKind::user) throw;
      return unreadable(console, fault_of(error));
    }
    const Program& program = *read;
    const CheckReport report = [&] {
      Progress progress(console, "checking");
      return accept_ ? accept_changed_models(path_) : check_program(program);
    }();
    print(console, program, report);
    return {json(program, report), report.good()};
  }

  // The changed models are not a valid program.
  std::pair<Json, bool> unreadable(const Console& console, const CheckFinding& fault) const {
    say_changed(console);
    say_faults(console, {fault});
    return {{{"good", false}, {"changed", changed_}, {"accepted", false}, {"findings", findings_json({fault})}}, false};
  }

  void say_changed(const Console& console) const {
    for (const std::string& file : changed_) console.say(file + " has changed since the program was written");
  }

  static void say_faults(const Console& console, const std::vector<CheckFinding>& faults) {
    for (const CheckFinding& fault : faults) console.say(fault.rule + ": " + fault.message);
    if (!faults.empty()) console.say("WRONG");
  }

  void print(const Console& console, const Program& program, const CheckReport& report) const {
    console.note(program.summary());
    console.say("mesh " + mesh_text(program.mesh()) + ", " + counted(report.models, "model") + ", " +
                counted(report.communications, "communication") + " in a step");
    say_changed(console);
    say_faults(console, report.findings);
    if (!report.good()) return;
    if (split_)
      console.say(
          "good: every rank reaches its end, and all ranks that give an output give the same (models that arrive split "
          "do not state layouts)");
    else
      console.say("good: every rank reaches its end, and every value has the layout that it states");
    if (!changed_.empty())
      console.say(accept_ ? "accepted: the program is these models from now on"
                          : "it runs only after its models are accepted: tessera check --accept " + path_);
  }

  static Json findings_json(const std::vector<CheckFinding>& all) {
    Json findings = Json::array();
    for (const CheckFinding& finding : all) {
      Json places = Json::array();
      for (const CheckFinding::Place& place : finding.places)
        places.push_back({{"rank", place.rank}, {"node", place.node.empty() ? Json() : Json(place.node)}});
      findings.push_back({{"rule", finding.rule}, {"message", finding.message}, {"places", places}});
    }
    return findings;
  }

  Json json(const Program& program, const CheckReport& report) const {
    return {{"good", report.good()},
            {"mesh", mesh_json(program.mesh())},
            {"models", report.models},
            {"communications", report.communications},
            {"changed", changed_},
            {"accepted", accept_ && report.good()},
            {"findings", findings_json(report.findings)}};
  }

  std::string path_;
  bool accept_ = false;
  std::vector<Model> models_;         // none for a written program
  std::vector<std::string> changed_;  // models of a written program, since it was written
  bool split_ = false;                // the models arrived with their communication
  PlanOptions plan_;
};

}  // namespace

std::unique_ptr<Command> make_check() {
  return std::make_unique<Check>();
}

}  // namespace tessera::cli

#include "tessera/cli/command.h"
#include "tessera/cli/details.h"
#include "tessera/cli/failure_options.h"
#include "tessera/cli/help.h"
#include "tessera/cli/overlap_report.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"
#include "tessera/cli/slow_level_text.h"
#include "tessera/cli/step_options.h"
#include "tessera/cli/time_options.h"
#include "tessera/cli/trace.h"
#include "tessera/files.h"
#include "tessera/trainer.h"

namespace tessera::cli {
namespace {

class Simulate : public Command {
 public:
  void declare(CLI::App& app) override {
    step_.declare(app, "simulate a training step of the model");
    time_.declare(app);
    time_.declare_changes(app);
    app.add_option("--trace", trace_, "a file for a trace with a track for each class of ranks, which Perfetto shows");
    details_.declare(app);
    app.add_option("--chakra", chakra_,
                   "writes Chakra's execution traces, as ASTRA-sim reads them: PREFIX.RANK.et for each class of ranks, "
                   "their groups, and which ranks are in a class")
        ->type_name("PREFIX");
    app.add_flag("--every-rank", every_rank_, "simulate each rank, not one for all that do the same");
    failures_.declare(app);
    // A prefix that is another option's file is a mistake, too.
    const auto written = [](const std::string& prefix) {
      return std::vector<std::string>{prefix, prefix + ".groups.json", prefix + ".classes.json"};
    };
    declare_paths(app, {{"--trace", PathUse::writes}, {"--chakra", PathUse::writes, written}});
  }

  int run(Console& console) override {
    details_.check(console);
    const PredictSettings settings = [&] {
      PredictSettings asked = time_.settings(step_.plan.topology());
      asked.overlap = !step_.plan.overlap.off();
      asked.fold = !every_rank_;
      return asked;
    }();
    const std::optional<AskedFailures> failures = failures_.asked();
    require_outputs();
    const AskedStep step = step_.asked(console);
    const Program program = compiled(console, step, settings);
    require_outputs();  // the model's files are known now
    std::vector<TraceFile> traces;
    const Forecast forecast = time_.predict(console, program, settings, false, chakra_.empty() ? nullptr : &traces);
    for (const TraceFile& file : traces) write_file(chakra_ + file.suffix, file.bytes);
    const int64_t peak = program.figures(largest_rank(program)).peak_bytes;
    const std::optional<SlowLevel> slow = slow_level_of(step, settings.machine, program.mesh().size());
    const std::optional<RunForecast> run =
        failures ? std::optional(failures->forecast(program, forecast.prediction.step_ms * 1e-3)) : std::nullopt;
    OverlapRows overlap;
    overlap.predict(forecast.prediction);
    if (!trace_.empty()) Trace::predicted(forecast.prediction, settings.machine.name).write(trace_);
    if (console.json) {
      Json object = {{"model", step_.model},
                     {"mesh", mesh_json(program.mesh())},
                     {"peak_bytes", peak},
                     {"collectives", collectives_json(program.summary())},
                     {"notes", program.summary().notes},
                     {"warnings", program.summary().warnings},
                     {"predicted", forecast_json(forecast)}};
      if (run) object["run"] = run_json(*run);
      if (slow) object["slow_level"] = slow_level_json(*slow);
      object["overlap"] = overlap_json(overlap, program.summary(), forecast);
      object.update(details_.of(program, {}, forecast));
      console.emit(object);
      return kGood;
    }
    if (!step.note.empty()) console.note(step.note);
    console.note(program.summary());
    console.say("mesh " + mesh_text(program.mesh()) + ", " + bytes_text(static_cast<double>(peak)) +
                " on a rank at its peak" + memory_text(settings.machine, peak));
    print_forecast(console, forecast);
    print_overlap(console, step_.plan.overlap.reports(), overlap, program.summary(), forecast);
    if (run) print_run(console, *run);
    if (slow) console.say(slow_level_text(*slow));
    return kGood;
  }

 private:
  void require_outputs() const {
    if (!trace_.empty()) require_writable(trace_);
    if (!chakra_.empty()) require_writable(chakra_ + ".groups.json");
  }

  static std::string memory_text(const MachineModel& machine, int64_t peak) {
    if (machine.memory <= 0 || static_cast<double>(peak) <= machine.memory) return "";
    return ", which is more than the " + bytes_text(machine.memory) + " of " + machine.name;
  }

  Program compiled(const Console& console, const AskedStep& step, const PredictSettings& settings) {
    const Mesh mesh = step_.plan.mesh(step.plan);
    CompileOptions options;
    settings.choose(options, mesh);
    options.run.overlap = settings.overlap;
    const Progress progress(console, "compiling");
    return step.compiled(mesh, options);
  }

  std::string trace_, chakra_;
  bool every_rank_ = false;
  StepOptions step_;
  TimeOptions time_;
  FailureOptions failures_;
  DetailOptions details_;
};

}  // namespace

std::unique_ptr<Command> make_simulate() {
  return std::make_unique<Simulate>();
}

}  // namespace tessera::cli

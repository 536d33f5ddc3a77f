#include "tessera/cli/command.h"
#include "tessera/cli/details.h"
#include "tessera/cli/help.h"
#include "tessera/cli/load_program.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/overlap_report.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"
#include "tessera/cli/time_options.h"

namespace tessera::cli {
namespace {

// Up to this many ranks, computes every rank's figures; beyond, only those of rank 0, whose shards are the largest.
constexpr int64_t kMostRanksAsked = 16;
constexpr size_t kReshardsPrinted = 20;

class Shard : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("model", model_, "an ONNX file")->required();
    plan_.declare(app);
    app.add_option("--fix", fixed_,
                   "sizes of symbolic dimensions that become constants: the program accepts no others, e.g. sequence=1")
        ->type_name("SIZES");
    under(app, Heading::output);
    auto* output = app.add_option("-o,--output", folder_,
                                  "the folder to write, whole or not at all; for an open mesh (tp=?), an ONNX file");
    app.add_flag("--dry-run", dry_, "print the plan and write nothing, for a mesh of any size")->excludes(output);
    form_.declare(app);
    memory_.declare(app,
                    "bytes, e.g. 512M or 4G, that each process may hold if it runs one rank; by default, unlimited");
    dump_.declare(app);
    declare_device(app, device_);
    time_.declare(app);
    details_.declare(app);
    declare_paths(app, {{"model", PathUse::reads, files_of_model}, {"--output", PathUse::replaces}});
  }

  int run(Console& console) override {
    if (dump_.list(console)) return kGood;
    dump_.check();
    details_.check(console);
    if (folder_.empty() && !dry_)
      throw Error(ErrorKind::user, "shard",
                  "no output is named; name a folder with -o, or give --dry-run to see the plan");
    Model model = load_model(console, model_);
    Plan plan = plan_.plan(model, console);
    const bool is_open = plan.mesh.find('?') != std::string::npos;
    if (!is_open) model = in_micro_batches(model, plan, console);
    if (const SymbolSizes fixed = parse_shapes(fixed_); !fixed.empty()) {
      model = model.with_sizes(fixed);
      for (const auto& [symbol, size] : fixed) plan.shapes.erase(symbol);
    }
    if (form_.options().dialect != Dialect::tessera) {  // their blocks must be known to be equal
      model = model.with_sizes(plan.shapes);
      plan.shapes.clear();
      if (plan.ring_attention != "always") plan.ring_attention = "never";  // they have no messages
      if (plan.overlap != "always") plan.overlap = "off";
    }
    if (is_open) return annotate(console, model, plan);
    std::optional<PredictSettings> settings = time_.settings_if_asked(plan_.topology());
    if (settings) settings->overlap = !plan_.overlap.off();
    Program program = [&] {
      Progress progress(console, "compiling");
      const Mesh mesh = plan_.mesh(plan);
      CompileOptions options;
      options.observe = dump_.observer(console);
      options.memory_limit = memory_.bytes();
      options.run.overlap = !plan_.overlap.off();
      time_.choose(console, plan_.topology(), mesh, options);
      return compile(model, mesh, plan, options);
    }();
    Figures figures;
    {
      Progress progress(console, "planning memory");
      figures.ranks = figures_of(program);
      if (dry_) figures.alone = one_device(model, plan).figures(0);
    }
    SessionOptions options;
    options.device = device_;
    dump_.machine(console, program, {}, options);
    if (!dry_) {
      Progress progress(console, "writing");
      program.write(folder_, form_.options());
    }
    std::optional<Forecast> forecast;
    if (settings) forecast = time_.predict(console, program, *settings, false);
    OverlapRows overlap;
    if (forecast) overlap.predict(forecast->prediction);
    if (console.json) {
      Json object = json_of(program, figures);
      if (forecast) object["predicted"] = forecast_json(*forecast);
      if (forecast || plan_.overlap.reports()) object["overlap"] = overlap_json(overlap, program.summary(), forecast);
      object.update(details_.of(program, {}, forecast));
      console.emit(object);
    } else if (dry_ || !console.quiet) {
      print(console, program, figures);
      if (forecast) print_forecast(console, *forecast);
      print_overlap(console, plan_.overlap.reports(), overlap, program.summary(), forecast);
    }
    return kGood;
  }

 private:
  struct Figures {
    std::vector<RankFigures> ranks;
    std::optional<RankFigures> alone;  // of a single rank that runs the whole model
  };

  // The mesh is not known yet: the model carries its plan, and is split where it is loaded.
  int annotate(const Console& console, const Model& model, const Plan& plan) const {
    if (dry_ || !folder_.ends_with(".onnx"))
      throw Error(ErrorKind::user, "shard",
                  "the mesh " + plan.mesh +
                      " is open, so that the model is written with its plan, to be split where it "
                      "is loaded; name the file, as -o annotated.onnx, or give all sizes");
    form_.refuse_for_open(plan.mesh);
    require_writable(folder_);
    {
      Progress progress(console, "writing");
      model.write_annotated(folder_, plan);
    }
    if (console.json)
      console.emit({{"model", model_}, {"mesh", plan.mesh}, {"written", folder_}});
    else
      console.note("wrote " + folder_ + ", for a mesh " + plan.mesh + "; run it with --mesh");
    return kGood;
  }

  static std::vector<RankFigures> figures_of(const Program& program) {
    int64_t asked = program.mesh().size() > kMostRanksAsked ? 1 : program.mesh().size();
    std::vector<RankFigures> figures;
    for (int64_t rank = 0; rank < asked; ++rank) figures.push_back(program.figures(rank));
    return figures;
  }

  void print(const Console& console, const Program& program, const Figures& figures) const {
    const ProgramSummary& summary = program.summary();
    console.note(summary);
    console.say("mesh " + mesh_text(program.mesh()));
    print_collectives(console, summary);
    print_reshards(console, summary.reshards, kReshardsPrinted);
    bool all = static_cast<int64_t>(figures.ranks.size()) == program.mesh().size();
    console.say(all ? "peak of memory, and work in a step:"
                    : "peak of memory, and work in a step, of the rank that needs most:");
    Table table({"rank", "peak", "of that, weights", "FLOPs"});
    auto row = [&](const std::string& rank, const RankFigures& of) {
      table.add({rank, bytes_text(static_cast<double>(of.peak_bytes)),
                 bytes_text(static_cast<double>(of.parameter_bytes)), count_text(static_cast<double>(of.flops))});
    };
    for (size_t r = 0; r < figures.ranks.size(); ++r) row(std::to_string(r), figures.ranks[r]);
    if (figures.alone) row("one rank", *figures.alone);
    table.print(console);
    if (dry_) return;
    console.note("wrote " + folder_);
    if (summary.equal_sizes.empty()) return;
    console.note("it runs at sizes with (for others, where one is 1, write another with --fix):");
    for (const std::string& equality : summary.equal_sizes) console.note("  " + equality);
  }

  static Json figures_json(const RankFigures& figures) {
    return {{"peak_bytes", figures.peak_bytes}, {"parameter_bytes", figures.parameter_bytes}, {"flops", figures.flops}};
  }

  Json json_of(const Program& program, const Figures& figures) const {
    const ProgramSummary& summary = program.summary();
    Json ranks = Json::array();
    for (size_t r = 0; r < figures.ranks.size(); ++r) {
      ranks.push_back({{"rank", r}});
      ranks.back().update(figures_json(figures.ranks[r]));
    }
    Json object = {{"model", model_},
                   {"mesh", mesh_json(program.mesh())},
                   {"inputs", ports_json(program.inputs())},
                   {"outputs", ports_json(program.outputs())},
                   {"shapes", summary.shapes},
                   {"equal_sizes", summary.equal_sizes},
                   {"collectives", collectives_json(summary)},
                   {"reshards", reshards_json(summary.reshards)},
                   {"ranks", ranks},
                   {"notes", summary.notes},
                   {"warnings", summary.warnings}};
    if (figures.alone) object["one_rank"] = figures_json(*figures.alone);
    if (!dry_) object["written"] = folder_;
    dump_.add_to(object);
    return object;
  }

  std::string model_, folder_, fixed_;
  bool dry_ = false;
  PlanOptions plan_;
  FormOptions form_;
  MemoryOption memory_;
  DumpOptions dump_;
  TimeOptions time_;
  DetailOptions details_;
  std::string device_ = "cpu";  // of the machine program
};

}  // namespace

std::unique_ptr<Command> make_shard() {
  return std::make_unique<Shard>();
}

}  // namespace tessera::cli

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "tessera/batches.h"
#include "tessera/cli/command.h"
#include "tessera/cli/help.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"
#include "tessera/cli/recorded_command.h"
#include "tessera/cli/step_options.h"
#include "tessera/cli/time_options.h"
#include "tessera/default_inputs.h"
#include "tessera/what_if.h"

namespace tessera::cli {
namespace {

[[noreturn]] void wrong_question(const std::string& message) {
  throw Error(ErrorKind::user, "whatif", message);
}

// What of the recorded program is compiled anew.
struct OtherOptions {
  std::vector<std::string> ranks;
  std::string bucket_bytes, dtype, shapes;

  bool any() const { return !ranks.empty() || !bucket_bytes.empty() || !dtype.empty() || !shapes.empty(); }
};

Mesh mesh_with(const Mesh& mesh, const std::vector<std::string>& ranks) {
  std::vector<MeshAxis> axes = mesh.axes();
  for (const std::string& text : ranks) {
    const auto [name, size] = factor_of("whatif", text, "--ranks dp=4");
    const auto axis =
        std::find_if(axes.begin(), axes.end(), [&, name = name](const MeshAxis& each) { return each.name == name; });
    if (axis == axes.end())
      wrong_question("the mesh of the trace, " + mesh_text(mesh) + ", has no axis '" + name +
                     "'; give one that it has");
    if (size != std::floor(size))
      wrong_question("'" + text + "' does not give a whole number of ranks; write it as --ranks dp=4");
    axis->size = static_cast<int64_t>(size);
  }
  return Mesh(axes);
}

// The program that the trace's command would have made of other options.
OtherProgram compiled_anew(const Console& console, const RunTrace& trace, const std::string& path,
                           const OtherOptions& changed, std::optional<MachineModel> machine) {
  const RecordedCommand command = RecordedCommand::read(trace.command(), path);
  if (command.value("model").empty())
    wrong_question(path + " does not say which model ran; record it again with bench --profile or train --profile");
  std::error_code ignored;  // it may have been recorded elsewhere; then paths must be valid here
  std::filesystem::current_path(command.folder, ignored);
  command.require_same_model(path);
  if (Program::is_written(command.value("model")))
    wrong_question(path +
                   " was recorded of a written program, whose mesh, buckets and types are fixed; record a run of "
                   "the ONNX model");
  CLI::App app;
  StepOptions step;
  step.declare(app, "");
  command.give(app);
  step.trains = command.name == "train";
  SymbolSizes sizes = command.sizes;
  for (const auto& [symbol, size] : changed.shapes.empty() ? SymbolSizes() : parse_shapes(changed.shapes))
    sizes[symbol] = size;
  step.plan.shapes = sizes_text(sizes);
  if (!changed.bucket_bytes.empty()) step.plan.bucket_bytes = changed.bucket_bytes;
  if (!changed.dtype.empty()) step.plan.dtype = changed.dtype;
  const Mesh mesh = mesh_with(trace.mesh(), changed.ranks);
  if (!(mesh == trace.mesh())) {
    step.plan.configuration.clear();
    step.plan.mesh_text = mesh.str();
  }
  const Progress progress(console, "compiling");
  AskedStep asked = step.asked(console);
  for (const char* data : {"--data", "--inputs"})  // may give values to initializers
    if (const std::string given = command.value(data); !given.empty())
      asked.model = step.trains ? Batches::fed(asked.model, given) : fed_by(asked.model, given);
  if (asked.training) asked.training->label_dims = {command.label_dims.begin(), command.label_dims.end()};
  Topology topology = trace.topology();
  if (!(mesh == trace.mesh()) && !topology.empty() && machine) topology = machine->topology(mesh);
  CompileOptions options;
  options.topology = topology;
  options.run.overlap = trace.overlap();
  return {asked.compiled(mesh, options), sizes, std::move(machine), std::move(topology)};
}

// Milliseconds of each kind of operator for which the step waits, before and after.
struct Part {
  std::string op;
  double before = 0, after = 0;
};

std::vector<Part> parts_of(const WhatIf& answer) {
  std::map<std::string, Part> by_op;
  for (const ChainPart& part : answer.before.chain) by_op[part.op].before += part.ms;
  for (const ChainPart& part : answer.after.chain) by_op[part.op].after += part.ms;
  std::vector<Part> parts;
  for (auto& [op, part] : by_op) {
    part.op = op;
    if (part.before > 0 || part.after > 0) parts.push_back(part);
  }
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::max(a.before, a.after) > std::max(b.before, b.after);
  });
  return parts;
}

std::string change_text(double before, double after) {
  return (after < before ? "-" : "+") + ms_text(std::abs(after - before));
}

class WhatIfCommand : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("trace", trace_, "a file that bench --profile or train --profile wrote")->required();
    under(app, Heading::measurement);
    repeatable(app.add_option("--scale", scale_,
                              "op:PATTERN=FACTOR: operators of this kind or name take so many times as long; "
                              "link:NAME=FACTOR: a level of links has so many times the bandwidth"))
        ->type_name("op:PATTERN=FACTOR");
    repeatable(app.add_option("--drop", changes_.drop,
                              "operators of this kind or name take no time, and their ranks do not wait for others"))
        ->type_name("PATTERN");
    repeatable(app.add_option("--insert", insert_,
                              "PATTERN=MS: an operator of so many milliseconds after each of this kind or name"))
        ->type_name("PATTERN=MS");
    takes_one_of(app.add_option("--overlap", overlap_,
                                "off: each communication is waited for where it starts; perfect: the bound, as if "
                                "communication hid as well as dependences and links allow"),
                 {"off", "perfect"});
    under(app, Heading::mesh);
    repeatable(app.add_option("--ranks", other_.ranks,
                              "AXIS=N: compile for another number of ranks along an axis of the mesh"))
        ->type_name("AXIS=N");
    app.add_option(
        "--bucket-bytes", other_.bucket_bytes,
        "compile anew: start small collectives of one kind and group as one, up to this many bytes (64K, 1M) "
        "together; 0: each alone");
    app.add_option(
        "--dtype", other_.dtype,
        "compile anew: the type in which a float32 model computes: float32 (fp32), bfloat16 (bf16) or float16 (fp16)");
    app.add_option("--shapes", other_.shapes, "compile anew: sizes of symbolic dimensions, e.g. batch=16");
    time_.declare(app);
    declare_paths(app, {{"trace", PathUse::reads}});
  }

  int run(Console& console) override {
    read_changes();
    std::optional<MachineModel> machine;
    if (time_.asked()) machine = time_.settings({}).machine;
    if (machine && !other_.any())
      wrong_question(
          "--machine and --cluster are for programs that are compiled anew; add --ranks, --bucket-bytes, "
          "--dtype or --shapes, or leave them out");
    const RunTrace trace = [&] {
      const Progress progress(console, "reading " + trace_);
      return RunTrace::read(trace_);
    }();
    std::optional<OtherProgram> other;
    if (other_.any()) other = compiled_anew(console, trace, trace_, other_, machine);
    const WhatIf answer = [&] {
      const Progress progress(console, "simulating");
      return other ? what_if(trace, changes_, *other) : what_if(trace, changes_);
    }();
    const Mesh mesh = other ? other->program.mesh() : trace.mesh();
    if (console.json)
      console.emit(json_of(answer, trace, mesh));
    else
      print(console, answer, trace, mesh);
    return kGood;
  }

 private:
  void read_changes() {
    for (const std::string& text : scale_) {
      const auto [name, factor] = factor_of("whatif", text, "--scale op:MatMul=0.5 or --scale link:ethernet=2");
      if (name.starts_with("op:"))
        changes_.scale_operators.emplace_back(name.substr(3), factor);
      else if (name.starts_with("link:"))
        changes_.scale_links.emplace_back(name.substr(5), factor);
      else
        wrong_question("'" + name + "' is neither an operator nor a link; write it as op:MatMul or link:ethernet");
    }
    for (const std::string& text : insert_) changes_.insert.push_back(factor_of("whatif", text, "--insert MatMul=0.5"));
    if (overlap_ == "off") changes_.overlap = WhatIfChanges::Overlap::off;
    if (overlap_ == "perfect") changes_.overlap = WhatIfChanges::Overlap::perfect;
  }

  bool changes_any() const {
    return other_.any() || !scale_.empty() || !changes_.drop.empty() || !insert_.empty() || !overlap_.empty();
  }

  void print(const Console& console, const WhatIf& answer, const RunTrace& trace, const Mesh& mesh) const {
    console.say(std::to_string(answer.runs) + (answer.runs == 1 ? " run" : " runs") + " of " +
                ms_text(answer.measured_ms) + " (median) on " + mesh_text(trace.mesh()) +
                "; simulated unchanged: " + percent(answer.replay_error));
    if (answer.hidden > 0)
      console.note("note: " + std::to_string(answer.hidden) + " of " + std::to_string(answer.transfers) +
                   " communications ended before they were waited for; their times are estimates");
    if (!changes_any()) return;
    console.say("changed" + (mesh == trace.mesh() ? "" : ", on " + mesh_text(mesh)) + ": " + ms_text(answer.step_ms) +
                ", " + change_text(answer.measured_ms, answer.step_ms) + " (" +
                percent(answer.step_ms / answer.measured_ms - 1) + ")");
    if (answer.after.extrapolated > 0)
      console.say(percent(answer.after.extrapolated) + " of the operators' time was not recorded: " + answer.assumed);
    if (changes_.overlap == WhatIfChanges::Overlap::perfect) {
      console.say(bound_text(answer.after));
      return;
    }
    Table times({"simulated", "before", "after", "change"});
    const auto add = [](Table& table, const std::string& what, double before, double after) {
      table.add({what, ms_text(before), ms_text(after), change_text(before, after)});
    };
    add(times, "step", answer.before.step_ms, answer.after.step_ms);
    add(times, "computing", answer.before.compute_ms, answer.after.compute_ms);
    add(times, "exposed communication", answer.before.exposed_ms, answer.after.exposed_ms);
    add(times, "idle", answer.before.idle_ms, answer.after.idle_ms);
    times.print(console);
    constexpr size_t kPrinted = 12;
    Table parts({"what the step waits for", "before", "after", "change"});
    for (const Part& part : parts_of(answer))
      if (parts.size() < kPrinted) add(parts, part.op, part.before, part.after);
    parts.print(console);
  }

  Json json_of(const WhatIf& answer, const RunTrace& trace, const Mesh& mesh) const {
    Json parts = Json::array();
    for (const Part& part : parts_of(answer))
      parts.push_back({{"op", part.op}, {"before_ms", part.before}, {"after_ms", part.after}});
    return {{"trace", trace_},
            {"runs", answer.runs},
            {"recorded_mesh", mesh_json(trace.mesh())},
            {"mesh", mesh_json(mesh)},
            {"measured_ms", answer.measured_ms},
            {"replay_error", answer.replay_error},
            {"step_ms", answer.step_ms},
            {"change_ms", answer.step_ms - answer.measured_ms},
            {"change", answer.step_ms / answer.measured_ms - 1},
            {"communications", answer.transfers},
            {"estimated", answer.hidden},
            {"assumed", answer.assumed},
            {"parts", parts},
            {"before", prediction_json(answer.before)},
            {"after", prediction_json(answer.after)}};
  }

  std::string trace_, overlap_;
  std::vector<std::string> scale_, insert_;
  WhatIfChanges changes_;
  OtherOptions other_;
  TimeOptions time_;
};

}  // namespace

std::unique_ptr<Command> make_whatif() {
  return std::make_unique<WhatIfCommand>();
}

}  // namespace tessera::cli

#include <algorithm>

#include "tessera/cli/command.h"
#include "tessera/cli/latency.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/progress.h"

namespace tessera::cli {
namespace {

// The first elements, for a first look.
std::string glance(const Tensor& tensor) {
  constexpr int64_t kMost = 4;
  std::vector<std::string> items;
  int64_t count = std::min(tensor.count(), kMost);
  for (int64_t i = 0; i < count; ++i) {
    if (tensor.dtype == DType::float32) {
      char text[32];
      std::snprintf(text, sizeof text, "%.4g", static_cast<double>(tensor.as<float>()[i]));
      items.emplace_back(text);
    } else if (tensor.dtype == DType::int64) {
      items.push_back(std::to_string(tensor.as<int64_t>()[i]));
    }
  }
  if (items.empty()) return "";
  return joined(items, " ") + (tensor.count() > kMost ? " …" : "");
}

TensorInfo info_of(const std::string& name, const Tensor& tensor) {
  TensorInfo info{name, tensor.dtype, {}};
  for (int64_t extent : tensor.dims) info.shape.push_back(std::to_string(extent));
  return info;
}

class Run : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("model", model_, kModelHelp)->required();
    plan_.declare(app);
    plan_.declare_own(app);
    inputs_.declare(app);
    app.add_option("--outputs", outputs_, "a .npz file to write, one array per output");
    app.add_option("--fetch", fetched_,
                   "which tensors to compute in place of the model's outputs, as a,b: outputs, or any others that its "
                   "nodes make")
        ->delimiter(',')
        ->allow_extra_args(false);
    app.add_option("--repeat", repeat_, "runs; the time of the fastest is printed")->check(CLI::PositiveNumber);
    dump_.declare(app);
    run_.declare(app);
  }

  int run(Console& console) override {
    if (dump_.list(console)) return kGood;
    dump_.check();
    if (std::optional<int> ended = run_.begin(console, "run --repeat " + std::to_string(repeat_))) return *ended;
    inputs_.memory_limit = run_.memory.bytes();
    if (!outputs_.empty() && console.speaks()) require_writable(outputs_);
    if (Program::is_written(model_)) dump_.refuse_for_written(model_);
    const Loaded loaded = load_program(model_, plan_, inputs_, console, dump_.observer(console), fetched_);
    const Program& program = loaded.program;
    const Tensors& inputs = loaded.inputs;
    Session session = [&] {
      Progress progress(console, "loading");
      return Session(program, run_.session(console));
    }();
    std::vector<int64_t> peaks = [&] {
      Progress progress(console, "preparing");
      return session.peak_bytes(inputs);
    }();
    console.note(program.summary());
    console.note("mesh " + mesh_text(program.mesh()) + ", " + std::to_string(session.threads_per_rank()) +
                 (session.threads_per_rank() == 1 ? " thread" : " threads") + " each; at its peak a rank needs " +
                 bytes_text(static_cast<double>(*std::max_element(peaks.begin(), peaks.end()))));
    Tensors outputs;
    double best = 0;
    for (int i = 0; i < repeat_; ++i) {
      Progress progress(console, "running");
      const Clock::time_point start = Clock::now();
      outputs = session.run(inputs);
      const double seconds = milliseconds_since(start) * 1e-3;
      best = i == 0 ? seconds : std::min(best, seconds);
    }
    if (!console.speaks()) return kGood;  // outputs are where rank 0 is
    if (!outputs_.empty()) write_tensors(outputs_, outputs);
    if (console.json)
      emit(console, program, session, peaks, outputs, best);
    else
      print(console, program, outputs, best);
    return kGood;
  }

 private:
  // What was asked for is in the file of --outputs; the rest is for who looks on.
  void print(const Console& console, const Program& program, const Tensors& outputs, double seconds) const {
    if (console.quiet) return;
    print_collectives(console, program.summary());
    console.say("ran in " + time_text(seconds));
    Table table({"output", "type", ""});
    for (const TensorInfo& port : program.outputs()) {
      const Tensor& tensor = outputs.at(port.name);
      table.add({port.name, type_text(info_of(port.name, tensor)), glance(tensor)});
    }
    table.print(console);
    if (!outputs_.empty()) console.say("wrote " + outputs_);
  }

  void emit(const Console& console, const Program& program, const Session& session, const std::vector<int64_t>& peaks,
            const Tensors& outputs, double seconds) const {
    const ProgramSummary& summary = program.summary();
    Json ranks = Json::array();
    for (size_t r = 0; r < peaks.size(); ++r) ranks.push_back({{"rank", r}, {"peak_bytes", peaks[r]}});
    Json produced = Json::array();
    for (const TensorInfo& port : program.outputs()) {
      const Tensor& tensor = outputs.at(port.name);
      produced.push_back({{"name", port.name}, {"dtype", name_of(tensor.dtype)}, {"shape", tensor.dims}});
    }
    Json object = {{"model", model_},
                   {"mesh", mesh_json(program.mesh())},
                   {"threads_per_rank", session.threads_per_rank()},
                   {"seconds", seconds},
                   {"collectives", collectives_json(summary)},
                   {"reshards", reshards_json(summary.reshards)},
                   {"ranks", ranks},
                   {"outputs", produced},
                   {"notes", summary.notes},
                   {"warnings", summary.warnings}};
    if (!inputs_.from_file()) object["seed"] = inputs_.seed;
    if (!outputs_.empty()) object["written"] = outputs_;
    dump_.add_to(object);
    console.emit(object);
  }

  std::string model_, outputs_;
  std::vector<std::string> fetched_;
  int repeat_ = 1;
  PlanOptions plan_;
  InputOptions inputs_;
  DumpOptions dump_;
  RunOptions run_;
};

}  // namespace

std::unique_ptr<Command> make_run() {
  return std::make_unique<Run>();
}

}  // namespace tessera::cli

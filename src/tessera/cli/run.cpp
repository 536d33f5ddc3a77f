#include <algorithm>
#include <cstring>

#include "tessera/cli/command.h"
#include "tessera/cli/help.h"
#include "tessera/cli/latency.h"
#include "tessera/cli/load_program.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"
#include "tessera/join.h"

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

/// The outputs of all steps, one after the other along a new first dimension.
class StackedOutputs {
 public:
  StackedOutputs(int steps, size_t memory_limit)
      : steps_(steps), limit_(memory_limit ? memory_limit : machine_memory()) {}

  void put(int step, const Tensors& outputs) {
    for (const auto& [name, output] : outputs) {
      Tensor& all = all_[name];
      if (step == 0) all = room_for(name, output);
      const size_t bytes = all.bytes / static_cast<size_t>(steps_);
      if (bytes > 0) std::memcpy(all.mutable_data() + static_cast<size_t>(step) * bytes, output.data, bytes);
    }
  }

  const Tensors& all() const { return all_; }

 private:
  Tensor room_for(const std::string& name, const Tensor& output) {
    if (bits_of(output.dtype) % 8 != 0 || output.dtype == DType::string)
      throw Error(ErrorKind::user, "run",
                  "the output '" + name + "' has elements of " + std::to_string(bits_of(output.dtype)) +
                      " bits, which cannot be stacked; leave it out with --fetch");
    if (output.bytes > (limit_ - taken_) / static_cast<size_t>(steps_))
      throw Error(ErrorKind::user, "run",
                  "the outputs of all steps need more than " + bytes_text(static_cast<double>(limit_)) + ", and '" +
                      name + "' alone " + bytes_text(static_cast<double>(output.bytes)) +
                      " a step; run fewer steps, "
                      "or leave it out with --fetch");
    taken_ += output.bytes * static_cast<size_t>(steps_);
    Dims dims = output.dims;
    dims.insert(dims.begin(), steps_);
    return Tensor::zeros(output.dtype, dims);
  }

  int steps_;
  size_t limit_, taken_ = 0;
  Tensors all_;
};

class Run : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("model", model_, kModelHelp)->required();
    plan_.declare(app);
    plan_.declare_own(app);
    inputs_.declare(app);
    repeatable(app.add_option("--fetch", fetched_,
                              "compute these tensors instead of the model's outputs, e.g. a,b: outputs, or any others "
                              "that its nodes make. A name that has commas needs a --fetch of its own"))
        ->type_name("NAMES");
    app.add_option("--steps", inputs_.steps,
                   "the number of consecutive runs, each on the states that the previous one left (--state). An input "
                   "with one more leading dimension, of this size, gives one slice to each run; other inputs are the "
                   "same for all. Outputs are stacked")
        ->check(above_zero());
    app.add_option("--load-states", loaded_states_,
                   "a .npz file with all states that change: their values before the first run");
    under(app, Heading::measurement);
    app.add_option("--repeat", repeat_, "the number of runs; the time of the fastest is printed")->check(above_zero());
    under(app, Heading::output);
    app.add_option("--outputs", outputs_, "a .npz file to write, with one array per output");
    app.add_option("--save-states", saved_states_,
                   "a .npz file to write, with all states that change, after the last run");
    dump_.declare(app);
    run_.declare(app);
    declare_paths(app, {{"model", PathUse::reads, files_of_model},
                        {"--outputs", PathUse::writes},
                        {"--load-states", PathUse::reads},
                        {"--save-states", PathUse::writes}});
  }

  int run(Console& console) override {
    if (dump_.list(console)) return kGood;
    dump_.check();
    if (std::optional<int> ended = run_.begin(console, "run --repeat " + std::to_string(repeat_))) return *ended;
    inputs_.memory_limit = run_.memory.bytes();
    if (inputs_.steps > 0 && repeat_ > 1)
      throw Error(ErrorKind::user, "run", "--repeat and --steps both say how often to run; give one of them");
    require_outputs(console);
    if (Program::is_written(model_)) dump_.refuse_for_written(model_);
    std::vector<Model> models;
    if (!Program::is_written(model_)) {
      models = load_models(console, model_);
      require_outputs(console);  // its tensors may be in files that are known now
      if (models.size() == 1) models.front() = inputs_.fed(models.front());
      const Model& whole = models.front();
      const bool in_parts = [&] {
        const Progress progress(console, "finding sizes");
        return models.size() == 1 && !has_collectives(whole) &&
               will_run_in_parts(asked(whole), inputs_, plan_.plan().over(whole.plan()).shapes);
      }();
      if (in_parts) return run_in_parts(whole, console);
    }
    const Loaded loaded =
        load_program(model_, plan_, inputs_, console, dump_.observer(console), fetched_, nullptr, std::move(models));
    require_outputs(console);
    const Program& program = loaded.program;
    const std::vector<TensorInfo> ports = program.inputs();
    Tensors inputs = inputs_.at_step(loaded.inputs, ports, 0);
    const Tensors states = given_states(program);
    Progress progress(console, "loading weights");
    Session session(program, run_.session(console));
    const std::vector<int64_t> peaks = session.peak_bytes(inputs);
    progress.end();
    console.note(program.summary());
    console.note("mesh " + mesh_text(program.mesh()) + ", " + std::to_string(session.threads_per_rank()) +
                 (session.threads_per_rank() == 1 ? " thread" : " threads") + " each; " +
                 peak_text(peaks, run_.ranks_of_process(console, program.mesh()), session.process_bytes()));
    Plan sizes;
    plan_.add_sizes(sizes, ports, inputs);
    dump_.machine(console, program, sizes.shapes, run_.session(console));
    if (!loaded_states_.empty()) session.set_states(states);
    Tensors outputs;
    StackedOutputs stacked(inputs_.steps, inputs_.memory_limit);
    double best = 0;
    const int runs = std::max(inputs_.steps, repeat_);
    progress.next("running");
    for (int i = 0; i < runs; ++i) {
      if (i > 0) inputs = inputs_.at_step(loaded.inputs, ports, i);
      const Clock::time_point start = Clock::now();
      outputs = session.run(inputs);
      const double seconds = milliseconds_since(start) * 1e-3;
      best = i == 0 ? seconds : std::min(best, seconds);
      if (inputs_.steps > 0) stacked.put(i, outputs);
    }
    const Tensors after = saved_states_.empty() ? Tensors{} : session.states();
    if (!console.speaks()) return kGood;  // outputs are where rank 0 is
    if (inputs_.steps > 0) outputs = stacked.all();
    progress.next("writing");
    if (!outputs_.empty()) write_tensors(outputs_, outputs);
    if (!saved_states_.empty()) write_tensors(saved_states_, after);
    progress.end();
    if (console.json)
      emit(console, program, session, peaks, outputs, best);
    else
      print(console, program, outputs, best);
    return kGood;
  }

 private:
  void require_outputs(const Console& console) const {
    for (const std::string* path : {&outputs_, &saved_states_})
      if (!path->empty() && console.speaks()) require_writable(*path);
  }

  Model asked(const Model& whole) const {
    return fetched_.empty() ? whole : whole.with_outputs(tensors_named(whole, fetched_));
  }

  // A model whose shapes depend on what it computes, or a branch or loop of which does not fit the inputs' sizes.
  int run_in_parts(Model whole, const Console& console) {
    const bool by_data = whole.runs_in_parts() || !whole.size_symbols().empty();
    const std::string why = by_data ? "shapes depend on what the model computes"
                                    : "a branch or loop takes two sizes for one that differ here";
    if (dump_.observer(console) || !loaded_states_.empty() || !saved_states_.empty())
      throw Error(ErrorKind::user, "run",
                  model_ + " is compiled in parts while it runs, since " + why +
                      "; leave out --dump, --load-states and --save-states");
    const Plan plan = plan_.plan(whole, console);
    const Model model = asked(whole);
    const std::vector<TensorInfo> ports = model.inputs();
    Tensors arrays = inputs_.given(ports);
    if (!inputs_.from_file()) arrays = inputs_.random(model, plan.shapes, console);
    Plan wanted = plan;
    plan_.add_sizes(wanted, ports, inputs_.at_step(arrays, ports, 0));
    const Mesh mesh = plan_.mesh(wanted);
    Progress progress(console, "running");
    Session session(model, mesh, wanted, {{}, nullptr, plan_.topology()}, run_.session(console));
    Tensors outputs;
    StackedOutputs stacked(inputs_.steps, inputs_.memory_limit);
    double best = 0;
    const int runs = std::max(inputs_.steps, repeat_);
    for (int i = 0; i < runs; ++i) {
      const Tensors inputs = inputs_.at_step(arrays, ports, i);
      const Clock::time_point start = Clock::now();
      outputs = session.run(inputs);
      const double seconds = milliseconds_since(start) * 1e-3;
      best = i == 0 ? seconds : std::min(best, seconds);
      if (inputs_.steps > 0) stacked.put(i, outputs);
    }
    if (inputs_.steps > 0) outputs = stacked.all();
    progress.next("writing");
    if (!outputs_.empty()) write_tensors(outputs_, outputs);
    progress.end();
    const std::vector<Program> programs = session.programs();
    if (console.json) {
      Json produced = Json::array(), parts = Json::array();
      for (const auto& [name, tensor] : outputs)
        produced.push_back({{"name", name}, {"dtype", name_of(tensor.dtype)}, {"shape", tensor.dims}});
      for (const Program& program : programs) parts.push_back({{"collectives", collectives_json(program.summary())}});
      Json object = {
          {"model", model_}, {"mesh", mesh_json(mesh)}, {"seconds", best}, {"parts", parts}, {"outputs", produced}};
      if (!inputs_.from_file()) object["seed"] = inputs_.seed;
      if (inputs_.steps > 0) object["steps"] = inputs_.steps;
      if (!outputs_.empty()) object["written"] = outputs_;
      console.emit(object);
    } else if (!console.quiet) {
      console.say("ran in " + std::to_string(programs.size()) + (programs.size() == 1 ? " part" : " parts") +
                  ", since " + why + ", in " + time_text(best));
      Table table({"output", "type", ""});
      for (const TensorInfo& port : model.outputs()) {
        const Tensor& tensor = outputs.at(port.name);
        table.add({port.name, type_text(info_of(port.name, tensor)), glance(tensor)});
      }
      table.print(console);
      if (!outputs_.empty()) console.say("wrote " + outputs_);
    }
    return kGood;
  }

  // Those of --load-states: all that change, and nothing else.
  Tensors given_states(const Program& program) const {
    std::vector<TensorInfo> changing;
    for (const StateInfo& state : program.states())
      if (state.changes) changing.push_back(state.tensor);
    if (changing.empty() && (!loaded_states_.empty() || !saved_states_.empty()))
      throw Error(
          ErrorKind::user, "state",
          model_ + " has no states that change, so that there are none to load or save; name them with --state");
    if (loaded_states_.empty()) return {};
    Tensors states = read_tensors(loaded_states_, "state", changing, inputs_.memory_limit);
    std::vector<std::string> missing;
    for (const TensorInfo& state : changing)
      if (!states.contains(state.name)) missing.push_back("'" + state.name + "'");
    if (!missing.empty()) {
      const size_t count = missing.size();
      missing.resize(std::min<size_t>(count, 3));
      throw Error(ErrorKind::user, "state",
                  loaded_states_ + " has no array for " + std::to_string(count) + " of the states that change: " +
                      joined(missing) + (count > 3 ? ", …" : "") + "; load what --save-states wrote");
    }
    return states;
  }

  // What was asked for is in the file of --outputs; the rest is for who looks on.
  void print(const Console& console, const Program& program, const Tensors& outputs, double seconds) const {
    if (console.quiet) return;
    print_collectives(console, program.summary());
    console.say(inputs_.steps > 0
                    ? "ran " + std::to_string(inputs_.steps) + " steps, the fastest in " + time_text(seconds)
                    : "ran in " + time_text(seconds));
    Table table({"output", "type", ""});
    for (const TensorInfo& port : program.outputs()) {
      const Tensor& tensor = outputs.at(port.name);
      table.add({port.name, type_text(info_of(port.name, tensor)), glance(tensor)});
    }
    table.print(console);
    for (const std::string* path : {&outputs_, &saved_states_})
      if (!path->empty()) console.say("wrote " + *path);
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
                   {"process", process_json(run_.ranks_of_process(console, program.mesh()), session.process_bytes())},
                   {"outputs", produced},
                   {"states", states_json(program)},
                   {"notes", summary.notes},
                   {"warnings", summary.warnings}};
    if (!inputs_.from_file()) object["seed"] = inputs_.seed;
    if (inputs_.steps > 0) object["steps"] = inputs_.steps;
    if (!outputs_.empty()) object["written"] = outputs_;
    if (!saved_states_.empty()) object["written_states"] = saved_states_;
    dump_.add_to(object);
    console.emit(object);
  }

  std::string model_, outputs_, loaded_states_, saved_states_;
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

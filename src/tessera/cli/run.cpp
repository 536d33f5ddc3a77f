#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>

#include "tessera/cli/command.h"
#include "tessera/cli/details.h"
#include "tessera/cli/help.h"
#include "tessera/cli/latency.h"
#include "tessera/cli/load_program.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"
#include "tessera/cli/time_options.h"
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

// A symbol, and not a number or an expression.
bool is_word(const std::string& extent) {
  return !extent.empty() && (std::isalpha(static_cast<unsigned char>(extent[0])) || extent[0] == '_') &&
         extent.find_first_of(" +-*/(") == std::string::npos;
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
    time_.declare(app);
    details_.declare(app);
    run_.declare(app, plan_.overlap);
    declare_paths(app, {{"model", PathUse::reads, files_of_model},
                        {"--outputs", PathUse::writes},
                        {"--load-states", PathUse::reads},
                        {"--save-states", PathUse::writes}});
  }

  int run(Console& console) override {
    if (dump_.list(console)) return kGood;
    dump_.check();
    details_.check(console);
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
      if (models.size() == 1 && !has_collectives(models.front())) return run_model(models.front(), console);
    }
    const Loaded loaded = load_program(model_, plan_, inputs_, time_, console, dump_.observer(console), fetched_,
                                       nullptr, std::move(models));
    require_outputs(console);
    Progress progress(console, "loading weights");
    Session session(loaded.program, session_options(console));
    return run_program(session, loaded.program, {loaded.program.inputs(), loaded.inputs}, console, progress);
  }

 private:
  struct Fed {
    std::vector<TensorInfo> ports;
    Tensors arrays;  ///< for all steps
  };
  struct Ran {
    Tensors outputs;     ///< of all steps, stacked, or of the last run
    double seconds = 0;  ///< of the fastest run
  };

  SessionOptions session_options(const Console& console) const {
    SessionOptions options = run_.session(console);
    options.profile = details_.asked;
    return options;
  }

  void require_outputs(const Console& console) const {
    for (const std::string* path : {&outputs_, &saved_states_})
      if (!path->empty() && console.speaks()) require_writable(*path);
  }

  // The session says whether a program runs it.
  int run_model(Model whole, const Console& console) {
    join_split(console, {whole}, model_, plan_, {});  // refuses what is for models that arrive split
    Plan plan = plan_.plan(whole, console);
    const Model stepped = with_states(whole, plan);
    const Model asked = fetched_.empty() ? stepped : stepped.with_outputs(tensors_named(stepped, fetched_));
    const Model model = in_micro_batches(asked, plan, console);
    const Mesh mesh = plan_.mesh(plan);
    Progress progress(console, "reading inputs");
    Fed fed{model.inputs(), inputs_.given(model.inputs())};
    progress.end();
    plan_.add_sizes(plan, fed.ports, inputs_.at_step(fed.arrays, fed.ports, 0));
    if (dump_.observer(console) || !loaded_states_.empty() || !saved_states_.empty())
      if (model.runs_in_parts(plan.shapes, inputs_.at_step(fed.arrays, fed.ports, 0)))
        throw Error(ErrorKind::user, "run",
                    model_ + " is compiled in parts while it runs, since " + why_in_parts(model) +
                        "; leave out --dump, --load-states and --save-states");
    progress.next("compiling");
    CompileOptions options;
    options.observe = dump_.observer(console);
    time_.choose(console, plan_.topology(), mesh, options);
    Session session(model, mesh, plan, options, session_options(console));
    progress.end();
    if (!inputs_.from_file()) fed.arrays = inputs_.random(model, plan.shapes, console);
    progress.next("loading weights");
    const std::optional<Program> program = session.prepare(inputs_.at_step(fed.arrays, fed.ports, 0));
    if (!program) return run_in_parts(session, model, mesh, fed, console, progress);
    if (const std::string sizes = sizes_text(fixed_sizes(fed.ports, *program)); !sizes.empty())
      console.note("note: compiled for " + sizes + " only, since that decides how many tensors a sequence has");
    return run_program(session, *program, fed, console, progress);
  }

  // The sizes that the program has no symbols for.
  static SymbolSizes fixed_sizes(const std::vector<TensorInfo>& ports, const Program& program) {
    SymbolSizes sizes;
    for (const TensorInfo& taken : program.inputs())
      for (const TensorInfo& port : ports)
        for (size_t d = 0; port.name == taken.name && d < port.shape.size(); ++d)
          if (port.shape[d] != taken.shape[d] && is_word(port.shape[d]))
            sizes[port.shape[d]] = std::stoll(taken.shape[d]);
    return sizes;
  }

  Ran run_steps(Session& session, const Fed& fed) const {
    Ran ran;
    StackedOutputs stacked(inputs_.steps, inputs_.memory_limit);
    const int runs = std::max(inputs_.steps, repeat_);
    for (int i = 0; i < runs; ++i) {
      const Tensors inputs = inputs_.at_step(fed.arrays, fed.ports, i);
      const Clock::time_point start = Clock::now();
      ran.outputs = session.run(inputs);
      const double seconds = milliseconds_since(start) * 1e-3;
      ran.seconds = i == 0 ? seconds : std::min(ran.seconds, seconds);
      if (inputs_.steps > 0) stacked.put(i, ran.outputs);
    }
    if (inputs_.steps > 0) ran.outputs = stacked.all();
    return ran;
  }

  int run_program(Session& session, const Program& program, const Fed& fed, const Console& console,
                  Progress& progress) {
    const Tensors inputs = inputs_.at_step(fed.arrays, fed.ports, 0);
    const Tensors states = given_states(program);
    const std::vector<int64_t> peaks = session.peak_bytes(inputs);
    progress.end();
    console.note(program.summary());
    console.note("mesh " + mesh_text(program.mesh()) + ", " + counted(session.threads_per_rank(), "thread") +
                 " each; " + peak_text(peaks, run_.ranks_of_process(console, program.mesh()), session.process_bytes()));
    Plan sizes;
    plan_.add_sizes(sizes, program.inputs(), inputs);
    dump_.machine(console, program, sizes.shapes, session_options(console));
    if (!loaded_states_.empty()) session.set_states(states);
    progress.next("running");
    const Ran ran = run_steps(session, fed);
    const Tensors after = saved_states_.empty() ? Tensors{} : session.states();
    progress.end();
    Trace measured("measured");
    if (details_.asked) measured.add(session.profile(), 0);
    const std::optional<Forecast> forecast = time_.predict_run(console, program, session.threads_per_rank(),
                                                               plan_.topology(), sizes.shapes, run_.overlaps());
    if (!console.speaks()) return kGood;  // outputs are where rank 0 is
    progress.next("writing");
    if (!outputs_.empty()) write_tensors(outputs_, ran.outputs);
    if (!saved_states_.empty()) write_tensors(saved_states_, after);
    progress.end();
    if (console.json)
      emit(console, program, session, peaks, ran.outputs, ran.seconds, forecast,
           details_.of(program, sizes.shapes, forecast, &measured));
    else
      print(console, program, ran.outputs, ran.seconds, forecast);
    return kGood;
  }

  static std::string why_in_parts(const Model& model) {
    return model.runs_in_parts() ? "shapes depend on what the model computes"
                                 : "a branch or loop takes two sizes for one that differ here";
  }

  // A model whose shapes depend on what it computes, or a branch or loop of which does not fit the inputs' sizes.
  int run_in_parts(Session& session, const Model& model, const Mesh& mesh, const Fed& fed, const Console& console,
                   Progress& progress) {
    progress.next("running");
    const Ran ran = run_steps(session, fed);
    progress.next("writing");
    if (!outputs_.empty()) write_tensors(outputs_, ran.outputs);
    progress.end();
    const std::vector<Program> programs = session.programs();
    if (console.json) {
      Json produced = Json::array(), parts = Json::array();
      for (const auto& [name, tensor] : ran.outputs)
        produced.push_back({{"name", name}, {"dtype", name_of(tensor.dtype)}, {"shape", tensor.dims}});
      for (const Program& program : programs) parts.push_back({{"collectives", collectives_json(program.summary())}});
      Json object = {{"model", model_},
                     {"mesh", mesh_json(mesh)},
                     {"seconds", ran.seconds},
                     {"parts", parts},
                     {"outputs", produced}};
      if (!inputs_.from_file()) object["seed"] = inputs_.seed;
      if (inputs_.steps > 0) object["steps"] = inputs_.steps;
      if (!outputs_.empty()) object["written"] = outputs_;
      console.emit(object);
    } else if (!console.quiet) {
      console.say("ran in " + counted(static_cast<int64_t>(programs.size()), "part") + ", since " +
                  why_in_parts(model) + ", in " + time_text(ran.seconds));
      print_outputs(console, model.outputs(), ran.outputs);
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

  static void print_outputs(const Console& console, const std::vector<TensorInfo>& ports, const Tensors& outputs) {
    Table table({"output", "type", ""});
    for (const TensorInfo& port : ports) {
      const Tensor& tensor = outputs.at(port.name);
      table.add({port.name, type_text(info_of(port.name, tensor)), glance(tensor)});
    }
    table.print(console);
  }

  // The file of --outputs has everything; the rest is for the terminal.
  void print(const Console& console, const Program& program, const Tensors& outputs, double seconds,
             const std::optional<Forecast>& forecast) const {
    if (forecast) print_forecast(console, *forecast);
    if (console.quiet) return;
    print_collectives(console, program.summary());
    console.say(inputs_.steps > 0 ? "ran " + counted(inputs_.steps, "step") + ", the fastest in " + time_text(seconds)
                                  : "ran in " + time_text(seconds));
    print_outputs(console, program.outputs(), outputs);
    for (const std::string* path : {&outputs_, &saved_states_})
      if (!path->empty()) console.say("wrote " + *path);
  }

  void emit(const Console& console, const Program& program, const Session& session, const std::vector<int64_t>& peaks,
            const Tensors& outputs, double seconds, const std::optional<Forecast>& forecast,
            const Json& details) const {
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
    if (forecast) object["predicted"] = forecast_json(*forecast);
    dump_.add_to(object);
    object.update(details);
    console.emit(object);
  }

  std::string model_, outputs_, loaded_states_, saved_states_;
  std::vector<std::string> fetched_;
  int repeat_ = 1;
  PlanOptions plan_;
  InputOptions inputs_;
  DumpOptions dump_;
  TimeOptions time_;
  DetailOptions details_;
  RunOptions run_;
};

}  // namespace

std::unique_ptr<Command> make_run() {
  return std::make_unique<Run>();
}

}  // namespace tessera::cli

#include <algorithm>

#include "tessera/cli/command.h"
#include "tessera/cli/help.h"
#include "tessera/cli/load_program.h"
#include "tessera/cli/models.h"
#include "tessera/cli/options.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/progress.h"
#include "tessera/cli/time_options.h"
#include "tessera/compare.h"

namespace tessera::cli {
namespace {

// The outputs, and the states that the step leaves if `states`.
Tensors answers(Session& session, const Program& program, const Tensors& inputs, bool states) {
  Tensors all = session.run(inputs);
  const std::vector<StateInfo> known = program.states();
  if (states && std::any_of(known.begin(), known.end(), [](const StateInfo& state) { return state.changes; }))
    all.merge(session.states());
  return all;
}

Tensors answers(const Program& program, const SessionOptions& options, const Tensors& inputs, bool states) {
  Session session(program, options);
  return answers(session, program, inputs, states);
}

// What answers() gives, in the model's order.
std::vector<TensorInfo> answered(const Program& program, bool states) {
  std::vector<TensorInfo> all = program.outputs();
  for (const StateInfo& state : program.states())
    if (states && state.changes) all.push_back(state.tensor);
  return all;
}

std::vector<std::string> names_of(const std::vector<TensorInfo>& ports) {
  std::vector<std::string> names;
  for (const TensorInfo& port : ports) names.push_back(port.name);
  return names;
}

bool all_pass(const std::vector<Difference>& differences) {
  return std::all_of(differences.begin(), differences.end(), [](const Difference& d) { return d.pass; });
}

/// Whether the model computes in another type than its own.
bool lowers(const Plan& plan) {
  return plan.dtype && *plan.dtype != DType::float32;
}

Plan in_own_type(Plan plan) {
  plan.dtype.reset();
  return plan;
}

std::vector<Difference> in_order(std::vector<Difference> differences, const std::vector<TensorInfo>& ports) {
  auto place = [&](const Difference& difference) {
    return std::find_if(ports.begin(), ports.end(), [&](const TensorInfo& p) { return p.name == difference.name; });
  };
  std::stable_sort(differences.begin(), differences.end(),
                   [&](const Difference& a, const Difference& b) { return place(a) < place(b); });
  return differences;
}

class Verify : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("model", model_, "an ONNX file")->required();
    plan_.declare(app);
    inputs_.declare(app);
    under(app, Heading::comparison);
    app.add_option("--expected", expected_,
                   "outputs to compare with: a .npz file, or a folder of output_N.pb; by default, one device computes "
                   "them");
    takes_one_of(app.add_option("--against", against_,
                                "compare with another engine on the same inputs: PyPI's onnxruntime, run by "
                                "$TESSERA_PYTHON, the active virtual environment's Python, or python3"),
                 {"onnxruntime"})
        ->excludes("--expected");
    repeatable(app.add_option("--outputs", outputs_,
                              "the tensors to compare, e.g. a,b: outputs of the model, or any others that its nodes "
                              "make; by default, all outputs. A name that has commas needs an --outputs of its own"))
        ->type_name("NAMES");
    rtol_option_ =
        app.add_option("--rtol", rtol_,
                       "tolerance relative to the largest expected magnitude; by default, 2e-5 for float32, 2e-2 for "
                       "bfloat16 and 2.5e-3 for float16")
            ->check(zero_or_more());
    atol_option_ =
        app.add_option("--atol", atol_, "absolute tolerance, added to that; by default, 0")->check(zero_or_more());
    app.add_flag("--first-diverging", always_, "look for the first tensor that differs, even if all outputs agree");
    run_.declare(app, plan_.overlap);
    time_.declare(app);
    declare_paths(app, {{"model", PathUse::reads, files_of_model}, {"--expected", PathUse::reads}});
  }

  int run(Console& console) override {
    if (!expected_.empty() && !inputs_.from_file())
      throw Error(ErrorKind::user, "verify",
                  "--expected needs the inputs to which it belongs; give them with --inputs");
    if (std::optional<int> ended = run_.begin(console, always_ ? "verify --first-diverging" : "verify")) return *ended;
    inputs_.memory_limit = run_.memory.bytes();
    Model whole = inputs_.fed(load_model(console, model_));
    const bool annotated = !whole.configurations().empty();  // maybe for one device
    Plan plan = plan_.plan(whole, console);
    const Model stepped = with_states(whole, plan);
    const Model asked = outputs_.empty() ? stepped : stepped.with_outputs(tensors_named(stepped, outputs_));
    Mesh mesh = plan_.mesh(plan);
    if (expected_.empty() && against_.empty() && mesh.axes().empty() && !annotated && plan.micro_batches <= 1)
      throw Error(ErrorKind::user, "verify",
                  "name a --mesh to compare with one device, --expected outputs, or --against onnxruntime");
    Progress progress(console, "reading inputs");
    Tensors inputs = inputs_.given(asked.inputs());
    progress.end();
    plan_.add_sizes(plan, asked.inputs(), inputs);
    if (asked.runs_in_parts(plan.shapes, inputs))
      return verify_parts(console, whole, asked, mesh, plan, std::move(inputs));
    const Tensors all_inputs = inputs;
    const Model model = for_program(asked, plan, &inputs_, inputs, console);
    Tensors expected = expected_outputs(whole, model);
    progress.next("compiling");
    CompileOptions options;
    time_.choose(console, plan_.topology(), mesh, options);
    Plan of_parts = plan;
    const Model in_parts = in_micro_batches(model, of_parts, console);
    const Model lone = reference_model(model, in_parts, plan.micro_batches);
    const Program program = compile(in_parts, mesh, of_parts, options);
    progress.end();
    if (!inputs_.from_file()) inputs = inputs_.random(in_parts, of_parts.shapes, console);
    progress.next("running on the mesh");
    const bool steps = expected_.empty() && against_.empty();  // then states are compared, too, after the step
    Tensors actual;
    std::optional<Forecast> forecast;
    {
      Session session(program, run_.session(console));
      actual = answers(session, program, inputs, steps);
      forecast = time_.predict_run(console, program, session.threads_per_rank(), plan_.topology(),
                                   sizes_of(program.inputs(), inputs), run_.overlaps());  // with all ranks
    }
    std::vector<Difference> differences;
    if (console.speaks()) {  // only rank 0 runs the one device
      if (expected_.empty()) progress.next("running on " + reference());
      if (!against_.empty())
        expected = run_onnxruntime(whole, inputs_.from_file() ? all_inputs : inputs, names_of(program.outputs()));
      else if (expected_.empty())
        expected = answers(one_device(lone, plan), alone(console), inputs, steps);
      progress.next("comparing");
      differences =
          in_order(compared(expected, actual, tolerance(plan, model), whole, inputs_.from_file() ? all_inputs : inputs),
                   answered(program, steps));
      if (may_lose(plan) && !all_pass(differences))
        judge_by_own_loss(differences, answers(one_device(lone, in_own_type(plan)), alone(console), inputs, steps),
                          expected, actual);
    }
    bool pass = all_pass(differences);
    if (console.connection) pass = console.connection->from_first(pass ? 1 : 0) == 1;
    std::optional<Difference> first;
    if (!pass || always_) {
      progress.next("looking for the first tensor that differs");
      Tolerance sparing = tolerance(plan, model);
      sparing.spares_nan = !without_keys_.empty();
      first = find_first(console, whole, one_device(lone, plan), program, inputs, sparing);
    }
    progress.end();
    if (!console.speaks()) return kGood;
    const Verdict verdict{program.mesh(), {program.summary()}, differences, pass, !pass || always_,
                          first,          std::move(forecast)};
    console.json ? emit(console, verdict) : print(console, verdict);
    return pass ? kGood : kNo;
  }

 private:
  struct Verdict {
    Mesh mesh;
    std::vector<ProgramSummary> programs;
    std::vector<Difference> differences;
    bool pass;
    bool searched;  ///< for the first tensor that differs, also beside outputs
    std::optional<Difference> first;
    std::optional<Forecast> forecast;
  };

  // A model whose shapes depend on what it computes: its parts are programs of their own.
  int verify_parts(const Console& console, const Model& whole, const Model& model, const Mesh& mesh, const Plan& plan,
                   Tensors inputs) {
    if (plan.micro_batches > 1)
      throw Error(
          ErrorKind::user, "verify",
          model_ + " runs in parts that follow from its data, so its batch is not cut; leave out --micro-batches");
    if (always_)
      throw Error(ErrorKind::user, "verify",
                  model_ +
                      " runs in parts, whose tensors are not compared one by one; leave out --first-diverging, and "
                      "name tensors with --outputs");
    Tensors expected = expected_outputs(whole, model);
    if (!inputs_.from_file()) inputs = inputs_.random(model, plan.shapes, console);
    Progress progress(console, "verifying");
    const auto alone_by = [&](const Plan& of) {
      return Session(model, Mesh(), one_device_plan(of), {}, alone(console)).run(inputs);
    };
    CompileOptions options;
    time_.choose(console, plan_.topology(), mesh, options);
    Session session(model, mesh, plan, options, run_.session(console));
    const Tensors actual = session.run(inputs);
    if (!against_.empty())
      expected = run_onnxruntime(whole, inputs, names_of(model.outputs()));
    else if (expected_.empty())
      expected = alone_by(plan);
    Verdict verdict{
        mesh,  {},    in_order(compared(expected, actual, tolerance(plan, model), whole, inputs), model.outputs()),
        false, false, {},
        {}};
    if (may_lose(plan) && !all_pass(verdict.differences))
      judge_by_own_loss(verdict.differences, alone_by(in_own_type(plan)), expected, actual);
    verdict.pass = all_pass(verdict.differences);
    for (const Program& program : session.programs()) verdict.programs.push_back(program.summary());
    progress.end();
    console.json ? emit(console, verdict) : print(console, verdict);
    return verdict.pass ? kGood : kNo;
  }

  // What one device runs: the model as it is, unless its batch is a number and so only that of one part, since then it
  // has no symbol that became another.
  Model reference_model(const Model& model, const Model& in_parts, int micro_batches) const {
    if (micro_batches <= 1 || model.symbols() != in_parts.symbols()) return model;
    if (!against_.empty())
      throw Error(ErrorKind::user, "verify",
                  "the batch of " + model_ + " is a number, that of one part, so " + against_ +
                      " cannot take all of them; leave out --micro-batches");
    return in_parts;
  }

  // What --expected holds of the outputs that are compared.
  Tensors expected_outputs(const Model& whole, const Model& asked) const {
    if (expected_.empty()) return {};
    std::vector<TensorInfo> ports = whole.outputs();
    for (const TensorInfo& port : asked.outputs()) ports.push_back(port);
    Tensors expected = read_tensors(expected_, "output", ports, inputs_.memory_limit);
    require_all(expected, asked.outputs());
    if (!outputs_.empty()) {
      const std::vector<TensorInfo> compared = asked.outputs();
      std::erase_if(expected, [&](const auto& entry) {
        return std::none_of(compared.begin(), compared.end(),
                            [&](const TensorInfo& port) { return port.name == entry.first; });
      });
    }
    return expected;
  }

  // Whether both answers are computed in a narrower type than the model's, and no bound is given.
  bool may_lose(const Plan& plan) const {
    return lowers(plan) && expected_.empty() && against_.empty() && !rtol_option_->count() && !atol_option_->count();
  }

  // An output without an expected one is not compared, and would always pass.
  void require_all(const Tensors& expected, const std::vector<TensorInfo>& outputs) const {
    for (const TensorInfo& output : outputs)
      if (!expected.contains(output.name))
        throw Error(ErrorKind::user, "verify",
                    "'" + expected_ + "' holds no '" + output.name + "'; give an array for every output of the model");
  }

  /// The source of the answers with which the mesh's are compared.
  std::string reference() const {
    if (!against_.empty()) return against_;
    return expected_.empty() ? "one device" : expected_;
  }

  // Where ONNX Runtime has NaN for rows of attention that see no key, other elements decide.
  std::vector<Difference> compared(const Tensors& expected, const Tensors& actual, Tolerance tolerance,
                                   const Model& whole, const Tensors& inputs) {
    std::vector<Difference> differences = compare(expected, actual, tolerance);
    if (against_.empty() || all_pass(differences)) return differences;
    tolerance.spares_nan = true;
    std::vector<Difference> others = compare(expected, actual, tolerance);
    if (std::all_of(others.begin(), others.end(), [](const Difference& d) { return d.spared == 0; }))
      return differences;
    const auto found = row_without_keys(whole, inputs);
    if (!found) return differences;
    without_keys_ = *found;
    return others;
  }

  // Outputs may be float32 though a model computes in 16-bit floats, but then not with float32's precision.
  Tolerance tolerance(const Plan& plan, const Model& model) const {
    Tolerance result;
    if (lowers(plan)) result = usual_tolerance(*plan.dtype);
    result.types = computed_in(model);
    if (rtol_option_->count()) result.relative = rtol_;
    if (atol_option_->count()) result.absolute = atol_;
    return result;
  }

  SessionOptions alone(const Console& console) const {
    SessionOptions options = run_.session(console);
    options.connection = nullptr;
    options.device = "cpu";
    return options;
  }

  // Runs both again and keeps all tensors.
  std::optional<Difference> find_first(const Console& console, const Model& whole, const Program& one,
                                       const Program& many, const Tensors& inputs, const Tolerance& tolerance) const {
    SessionOptions options = run_.session(console), on_one = alone(console);
    options.keep_all = on_one.keep_all = true;
    Session actual(many, options);
    actual.run(inputs);
    if (!console.speaks()) {
      actual.kept();  // gives this rank's parts
      return std::nullopt;
    }
    if (!against_.empty()) return first_diverging_from_onnxruntime(whole, inputs, actual, tolerance);
    Session expected(one, on_one);
    expected.run(inputs);
    return first_diverging(expected, actual, tolerance);
  }

  /// Facts about an output that the table's numbers do not show.
  std::vector<std::string> remarks(const Difference& entry) const {
    std::vector<std::string> lines;
    auto of_all = [&](int64_t count) { return std::to_string(count) + " of " + std::to_string(entry.elements); };
    if (entry.misplaced > 0)
      lines.push_back(entry.name + ": " + of_all(entry.misplaced) +
                      " elements are NaN or infinite in one answer only, the first at " + entry.first_misplaced);
    else if (entry.not_finite > 0)
      lines.push_back(entry.name + ": " + of_all(entry.not_finite) + " elements are NaN or infinite, as expected" +
                      (entry.not_finite == entry.elements ? "; no number was compared: try other --inputs" : ""));
    if (entry.spared > 0)
      lines.push_back(entry.name + ": " + of_all(entry.spared) + " elements are NaN in " + against_ +
                      " and numbers here, since rows of " + without_keys_ +
                      " see no key; they are zeros here (docs/architecture.md), and were not compared");
    if (entry.own_loss > 0)
      lines.push_back(entry.name + ": one device is " + small_text(entry.own_loss) +
                      " away from its answer in float32, " + "the mesh " + small_text(entry.loss) + " (max rel)");
    return lines;
  }

  void print(const Console& console, const Verdict& verdict) const {
    const auto& [mesh, programs, differences, pass, searched, first, forecast] = verdict;
    for (const ProgramSummary& program : programs) console.note(program);
    console.say("mesh " + mesh_text(mesh) + " against " + reference());
    Table table({"output", "max abs", "max rel", ""});
    for (const Difference& entry : differences) {
      bool known = entry.problem.empty();
      table.add({entry.name, known ? small_text(entry.max_abs) : "-", known ? small_text(entry.max_rel) : "-",
                 entry.pass ? "pass" : (known ? "FAIL" : "FAIL: " + entry.problem)});
    }
    table.print(console);
    for (const Difference& entry : differences)
      for (const std::string& remark : remarks(entry)) console.say(remark);
    if (first)
      console.say("first diverging tensor: '" + first->name + "', max abs " + small_text(first->max_abs) +
                  ", max rel " + small_text(first->max_rel));
    else if (searched)
      console.say("no tensor of " + (against_.empty() ? "one device" : against_) +
                  " and of the mesh differs by more than the tolerance");
    if (forecast) print_forecast(console, *forecast);
    console.say(pass ? "pass" : "FAIL");
  }

  void emit(const Console& console, const Verdict& verdict) const {
    Json outputs = Json::array();
    for (const Difference& entry : verdict.differences) {
      Json output = {{"name", entry.name},         {"max_abs", entry.max_abs},       {"max_rel", entry.max_rel},
                     {"elements", entry.elements}, {"not_finite", entry.not_finite}, {"misplaced", entry.misplaced},
                     {"pass", entry.pass}};
      if (entry.spared > 0) output["nan_without_keys"] = entry.spared;
      if (entry.own_loss > 0) output["from_float32"] = {{"one_device", entry.own_loss}, {"mesh", entry.loss}};
      if (!entry.problem.empty()) output["problem"] = entry.problem;
      outputs.push_back(std::move(output));
    }
    std::vector<std::string> notes, warnings;
    for (const ProgramSummary& program : verdict.programs) {
      notes.insert(notes.end(), program.notes.begin(), program.notes.end());
      warnings.insert(warnings.end(), program.warnings.begin(), program.warnings.end());
    }
    Json object = {{"pass", verdict.pass},
                   {"mesh", mesh_json(verdict.mesh)},
                   {"against", reference()},
                   {"outputs", outputs},
                   {"first_diverging", verdict.first ? Json(verdict.first->name) : Json()},
                   {"notes", notes},
                   {"warnings", warnings}};
    if (verdict.forecast) object["predicted"] = forecast_json(*verdict.forecast);
    console.emit(object);
  }

  std::string model_, expected_, against_;
  std::string without_keys_;  // a Softmax whose rows see no key, if that is why elements are spared
  std::vector<std::string> outputs_;
  double rtol_ = 0, atol_ = 0;
  CLI::Option *rtol_option_ = nullptr, *atol_option_ = nullptr;
  bool always_ = false;
  PlanOptions plan_;
  InputOptions inputs_;
  RunOptions run_;
  TimeOptions time_;
};

}  // namespace

std::unique_ptr<Command> make_verify() {
  return std::make_unique<Verify>();
}

}  // namespace tessera::cli

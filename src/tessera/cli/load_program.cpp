#include "tessera/cli/load_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/cli/latency.h"
#include "tessera/cli/models.h"
#include "tessera/cli/progress.h"

namespace tessera::cli {
Model with_states(const Model& model, Plan& plan) {
  const std::vector<std::string> states = std::exchange(plan.states, {});
  return states.empty() ? model : model.with_states(states);
}

Model in_micro_batches(const Model& model, Plan& plan, const Console& console) {
  std::string note;
  Model made = model.in_micro_batches(plan, &note);
  if (!note.empty()) console.note("note: " + note);
  return made;
}

Model for_program(const Model& model, Plan& plan, const InputOptions* inputs, Tensors& arrays, const Console& console) {
  std::string note;
  const Model made = model.for_program(plan.shapes, arrays, &note);
  const std::vector<TensorInfo> ports = made.inputs();
  std::erase_if(arrays, [&](const auto& array) {
    return std::none_of(ports.begin(), ports.end(), [&](const TensorInfo& port) { return port.name == array.first; });
  });
  if (note.empty()) return made;
  const std::vector<std::string> left = made.symbols();
  for (const std::string& symbol : model.symbols()) {
    if (std::find(left.begin(), left.end(), symbol) != left.end()) continue;
    if (plan.shapes.erase(symbol) == 0 && inputs && inputs->from_file())
      throw Error(
          ErrorKind::user, "inputs",
          fmt::format("the shapes of the arrays in {} do not give the size of '{}', which decides how many tensors a "
                      "sequence has; give arrays that fit the model's inputs, or --shapes {}=SIZE",
                      inputs->path, symbol, symbol));
  }
  console.note("note: " + note);
  return made;
}

Loaded load_program(const std::string& path, const PlanOptions& plan, const InputOptions& inputs,
                    const TimeOptions& time, const Console& console, const StageObserver& observer,
                    const std::vector<std::string>& fetched, const std::function<void(const Model&)>& check,
                    std::vector<Model> models) {
  auto refuse_fetching = [&] {
    if (!fetched.empty())
      throw Error(ErrorKind::user, "run",
                  fmt::format("{} is split already, so that its outputs are fixed; leave out --fetch", path));
  };
  Clock::time_point start = Clock::now();
  if (Program::is_written(path)) {
    plan.refuse_for_written(path);
    refuse_fetching();
    Program program = [&] {
      const Progress progress(console, "reading " + path);
      return Program::read(path);
    }();
    const double read = milliseconds_since(start);
    return {program, inputs.given_for_written(program), std::nullopt, {}, read};
  }
  if (models.empty()) models = load_models(console, path);
  if (models.size() == 1) models.front() = inputs.fed(models.front());
  const double read = milliseconds_since(start);
  std::vector<TensorInfo> ports = models.front().inputs();
  for (size_t i = 1; i < models.size(); ++i)
    for (const TensorInfo& port : models[i].inputs()) ports.push_back(port);
  Tensors arrays = [&] {
    const Progress progress(console, "reading inputs");
    return inputs.given(ports);
  }();
  start = Clock::now();
  if (std::optional<Program> program = join_split(console, models, path, plan, arrays)) {
    if (observer)
      throw Error(ErrorKind::user, "dump",
                  fmt::format("{} is split already and goes through no stages; leave out --dump", path));
    refuse_fetching();
    if (!inputs.from_file()) arrays = inputs.given_for_written(*program);
    return {*program, arrays, std::nullopt, {}, read + milliseconds_since(start)};
  }
  Plan wanted = plan.plan(models.front(), console);
  const Model stepped = with_states(models.front(), wanted);
  const Model asked = fetched.empty() ? stepped : stepped.with_outputs(tensors_named(stepped, fetched));
  if (check) check(asked);
  const Mesh mesh = plan.mesh(wanted);
  plan.add_sizes(wanted, asked.inputs(), inputs.at_step(arrays, asked.inputs(), 0));
  const Model model = in_micro_batches(for_program(asked, wanted, &inputs, arrays, console), wanted, console);
  start = Clock::now();
  Program program = [&] {
    const Progress progress(console, "compiling");
    CompileOptions options;
    options.observe = observer;
    time.choose(console, plan.topology(), mesh, options);
    return compile(model, mesh, wanted, options);
  }();
  const double compiled = milliseconds_since(start);
  if (!inputs.from_file()) arrays = inputs.random(model, wanted.shapes, console);
  return {program, arrays, model, wanted, read + compiled};
}

}  // namespace tessera::cli

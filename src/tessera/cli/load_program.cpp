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

Model with_given_values(const Model& model, const InputOptions& inputs, Tensors& arrays) {
  const std::string path = model.path().string(), why = model.why_in_parts();
  if (model.runs_in_parts())
    throw Error(ErrorKind::user, "run",
                fmt::format("the shapes of {} depend on what it computes, so that it runs in parts, each compiled when "
                            "the one before has "
                            "run; only tessera run and verify do that{}{}",
                            path, why.empty() ? "" : "; the reason is ", why));
  const std::vector<std::string> names = model.value_inputs();
  if (names.empty()) return model;
  if (!inputs.from_file())
    throw Error(ErrorKind::user, "inputs",
                fmt::format("the shapes of {} depend on the elements of its {} {}; give them with --inputs", path,
                            names.size() == 1 ? "input" : "inputs", joined(names, ", ")));
  Tensors values;
  for (const TensorInfo& port : model.inputs()) {
    if (std::find(names.begin(), names.end(), port.name) == names.end()) continue;
    const auto given = arrays.find(port.name);
    if (given == arrays.end())
      throw Error(ErrorKind::user, "inputs",
                  fmt::format("the input '{}' is missing, on whose elements shapes depend; give it in {}", port.name,
                              inputs.path));
    if (given->second.dims.size() != port.shape.size())
      throw Error(
          ErrorKind::user, "inputs",
          fmt::format(
              "the elements of input '{}' decide shapes, and cannot differ from step to step; give one array for all",
              port.name));
    values.insert(*given);
    arrays.erase(given);
  }
  return model.with_values(values);
}

Model sized_as_needed(const Model& model, Plan& plan, const InputOptions* inputs, const Console& console) {
  if (model.size_symbols().empty()) return model;
  SymbolSizes needed = model.complete(plan.shapes);
  Model sized = model.with_needed_sizes(plan.shapes);
  for (const std::string& symbol : sized.symbols()) needed.erase(symbol);
  for (const auto& [symbol, size] : needed)
    if (plan.shapes.erase(symbol) == 0 && inputs && inputs->from_file())
      throw Error(
          ErrorKind::user, "inputs",
          fmt::format(
              "the shapes of the arrays in {} do not give the size of '{}', which decides how many tensors a sequence "
              "has; give arrays that fit the model's inputs, or --shapes {}=SIZE",
              inputs->path, symbol, symbol));
  console.note("note: compiled for " + sizes_text(needed) + " alone, which decides how many tensors a sequence has");
  return sized;
}

bool will_run_in_parts(const Model& model, const InputOptions& inputs, const SymbolSizes& sizes) {
  if (model.runs_in_parts()) return true;
  if (!inputs.from_file()) return model.with_needed_sizes(sizes).runs_in_parts();
  const std::vector<TensorInfo> ports = model.inputs();
  Tensors arrays = inputs.given(ports);
  const Model valued = with_given_values(model, inputs, arrays);
  return valued.runs_in_parts(inputs.at_step(arrays, ports, 0));
}

Loaded load_program(const std::string& path, const PlanOptions& plan, const InputOptions& inputs,
                    const Console& console, const StageObserver& observer, const std::vector<std::string>& fetched,
                    const std::function<void(const Model&)>& check, std::vector<Model> models) {
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
  Model model = with_given_values(asked, inputs, arrays);
  const Mesh mesh = plan.mesh(wanted);
  plan.add_sizes(wanted, model.inputs(), inputs.at_step(arrays, model.inputs(), 0));
  model = with_given_values(sized_as_needed(model, wanted, &inputs, console), inputs, arrays);
  start = Clock::now();
  Program program = [&] {
    const Progress progress(console, "compiling");
    return compile(model, mesh, wanted, {{}, observer, plan.topology()});
  }();
  const double compiled = milliseconds_since(start);
  if (!inputs.from_file()) arrays = inputs.random(model, wanted.shapes, console);
  return {program, arrays, model, wanted, read + compiled};
}

}  // namespace tessera::cli

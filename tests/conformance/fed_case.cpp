#include "conformance/fed_case.h"

#include <algorithm>
#include <fstream>

#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/compare.h"
#include "tessera/onnx/export.h"
#include "tessera/tessera.h"

namespace tessera::conformance {
namespace {

constexpr std::string_view kIndex = "which.stacked";

void store(Graph& graph, Value* input, const Tensor& given) {
  const std::string name = input->name;
  graph.rename(input, name + ".was");
  Value* stored = graph.add_constant(name, given);
  stored->extra.clear();
  graph.replace_uses(input, stored);
  std::erase(graph.inputs, input);
}

void make_constant(Graph& graph, Value* input, const Tensor& given) {
  const std::string name = input->name;
  graph.rename(input, name + ".was");
  const Node* first = graph.nodes().empty() ? nullptr : graph.nodes().front().get();
  Node* constant = graph.add_node("Constant", {}, {name}, "", first);
  constant->set("value", given);
  constant->outputs[0]->type = {given.dtype, Shape(given.dims.begin(), given.dims.end())};
  graph.replace_uses(input, constant->outputs[0]);
  std::erase(graph.inputs, input);
}

/// NAME = Gather(NAME.stacked, index): an operator of every version that takes every type.
void compute(Graph& graph, Value* input, Value* index) {
  const std::string name = input->name;
  graph.rename(input, name + ".stacked");
  const Node* first = graph.nodes().empty() ? nullptr : graph.nodes().front().get();
  Node* gather = graph.add_node("Gather", {}, {name}, "", first);
  gather->set("axis", int64_t{0});
  graph.replace_uses(input, gather->outputs[0]);
  gather->outputs[0]->type = input->type;
  input->extra.clear();
  if (input->type.shape) input->type.shape->insert(input->type.shape->begin(), Expr(1));
  gather->inputs = {nullptr, nullptr};
  graph.set_input(gather, 0, input);
  graph.set_input(gather, 1, index);
}

/// Splits the first dimension that can be, of a tensor that the model knows by an input's name; "" where none can.
std::string annotation_of(const NodeCase& node_case, Feed feed) {
  for (const Value* input : node_case.model.graph->inputs) {
    const Tensor& tensor = node_case.inputs.at(input->name);
    // Lists of integers are what shapes are computed from; a Constant's name is not that of a tensor.
    const bool laid_out = feed == Feed::inputs || feed == Feed::results || is_float(tensor.dtype);
    if (!laid_out || feed == Feed::constants) continue;
    for (size_t d = 0; d < tensor.dims.size(); ++d) {
      if (tensor.dims[d] < 2) continue;
      std::string entries;
      for (size_t i = 0; i < tensor.dims.size(); ++i)
        entries += fmt::format("{}{}", i == 0 ? "" : ", ", i == d ? "dp?" : "?");
      return fmt::format("{}=[{}]", input->name, entries);
    }
  }
  return "";
}

Tensors on_one_rank(const Model& model, const Tensors& inputs) {
  SessionOptions options;
  options.threads_per_rank = 1;
  return Session(model, Mesh(), {}, {}, options).run(inputs);
}

// Shapes depend on values, so that no program can be made before the run.
Tensors as_runs_need(const Model& model, const Tensors& inputs, const std::string& annotation,
                     const SessionOptions& options) {
  const Mesh mesh = Mesh::parse("dp=2");
  Plan plan;
  if (!annotation.empty()) plan.annotations.push_back({annotation});
  try {
    return Session(model, mesh, plan, {}, options).run(inputs);
  } catch (const Error& error) {
    if (annotation.empty() || error.kind() != ErrorKind::user) throw;
    return Session(model, mesh, {}, {}, options).run(inputs);  // what is annotated has no layout
  }
}

Program split(const Model& model, const std::string& annotation) {
  const Mesh mesh = Mesh::parse("dp=2");
  Plan plan;
  if (annotation.empty()) return compile(model, mesh, plan);
  plan.annotations.push_back({annotation});
  try {
    return compile(model, mesh, plan);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;
    return compile(model, mesh, Plan());  // the tensor has no layout: it was folded
  }
}

Tensors on_two_ranks(const Model& model, const Tensors& inputs, const std::string& annotation,
                     const std::filesystem::path& written) {
  SessionOptions options;
  options.threads_per_rank = 1;
  options.timeout = std::chrono::seconds(60);
  if (model.runs_in_parts() || !model.impl().value_inputs().empty())
    return as_runs_need(model, inputs, annotation, options);
  Program program = split(model, annotation);
  if (!written.empty()) {
    program.write(written);
    program = Program::read(written);
  }
  return Session(program, options).run(inputs);
}

}  // namespace

std::string_view name_of(Feed feed) {
  switch (feed) {
    case Feed::inputs:
      return "inputs";
    case Feed::initializers:
      return "initializers";
    case Feed::constants:
      return "constants";
    case Feed::results:
      return "results";
  }
  return "";
}

namespace {

/// The case with each input where `feed` says. Results are taken by Gather from inputs "NAME.stacked", by an index that
/// is an input as well.
NodeCase fed(const NodeCase& node_case, Feed feed) {
  NodeCase changed{node_case.name, node_case.model.clone(), node_case.inputs, node_case.outputs, node_case.tolerance};
  if (feed == Feed::inputs) return changed;
  Graph& graph = *changed.model.graph;
  changed.model.opset_imports.emplace("", 17);
  Value* index = nullptr;
  for (Value* input : std::vector<Value*>(graph.inputs)) {
    Tensor given = node_case.inputs.at(input->name);
    if (feed != Feed::results) changed.inputs.erase(input->name);
    if (feed == Feed::initializers) store(graph, input, given);
    if (feed == Feed::constants) make_constant(graph, input, given);
    if (feed == Feed::results) {
      if (!index) {
        index = graph.add_input(kIndex, {DType::int64, Shape{}});
        changed.inputs[index->name] = Tensor::of<int64_t>(DType::int64, {}, {0});
      }
      changed.inputs.erase(input->name);
      compute(graph, input, index);
      given.dims.insert(given.dims.begin(), 1);
      changed.inputs[input->name] = std::move(given);
    }
  }
  return changed;
}

}  // namespace

Outcome run_fed(const NodeCase& original, Feed feed, const std::filesystem::path& folder) {
  try {
    const NodeCase node_case = fed(original, feed);
    const std::string annotation = annotation_of(original, feed);
    const std::filesystem::path written = feed == Feed::initializers ? folder / "written" : "";
    const std::filesystem::path file = folder / "model.onnx";
    std::ofstream(file, std::ios::binary) << export_model_bytes(node_case.model);
    const Model model = Model::load(file);
    const Tensors alone = on_one_rank(model, node_case.inputs);
    for (const auto& [name, expected] : node_case.outputs) {
      if (!alone.contains(name)) return {Verdict::wrong, fmt::format("'{}' is missing", name)};
      std::string problem = mismatch(name, expected, alone.at(name), node_case.tolerance);
      if (!problem.empty()) return {Verdict::wrong, problem};
    }
    for (const Difference& difference : compare(alone, on_two_ranks(model, node_case.inputs, annotation, written)))
      if (!difference.pass)
        return {Verdict::wrong, fmt::format("'{}' is off by {}{} on two ranks", difference.name, difference.max_abs,
                                            difference.problem)};
    return {Verdict::pass, ""};
  } catch (const Error& error) {
    return {error.kind() == ErrorKind::user ? Verdict::unsupported : Verdict::broken, error.what()};
  } catch (const std::exception& error) {
    return {Verdict::broken, error.what()};
  }
}

}  // namespace tessera::conformance

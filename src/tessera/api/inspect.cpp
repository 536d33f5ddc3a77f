#include "tessera/inspect.h"

#include "tessera/api/impl.h"
#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/saturated.h"
#include "tessera/compiler/graph_costs.h"
#include "tessera/compiler/inventory.h"
#include "tessera/compiler/random_inputs.h"
#include "tessera/onnx/device_annotations.h"
#include "tessera/onnx/file_facts.h"
#include "tessera/program_io/written_program.h"
#include "tessera/spmd/layout/sizes.h"
#include "tessera/spmd/presets/inputs.h"

namespace tessera {
inline namespace v1 {

Inspection inspect(const Model& model, const SymbolSizes& sizes) {
  const OnnxModel& read = model.impl().model;
  Inspection result;
  FileFacts facts = file_facts(read);
  result.producer = facts.producer;
  result.ir_version = read.ir_version;
  result.opset = read.opset();
  result.inputs = model.inputs();
  result.outputs = model.outputs();
  result.sizes = model.complete(sizes);
  compiler::Weights weights = compiler::weights_of(read);
  result.parameters = weights.elements;
  result.parameter_bytes = weights.bytes;
  result.weights = std::move(weights.all);
  for (const DeviceConfiguration& configuration : device_configurations(read))
    result.device_configurations.push_back(
        fmt::format("{}: {}", configuration.name, counted(configuration.num_devices, "device")));
  result.annotated_nodes = facts.annotated_nodes;

  result.value_inputs = model.impl().value_inputs();
  const std::set<std::string>& symbols = model.impl().size_symbols();
  result.size_symbols = {symbols.begin(), symbols.end()};
  result.runs_in_parts = model.impl().runs_in_parts();
  result.why_in_parts = model.impl().why_in_parts();
  const Model sized = api::with_needed_sizes(model, sizes);
  std::set<std::string> uncovered;
  try {
    const OnnxModel& rewritten = sized.impl().rewritten();
    uncovered = compiler::uncovered_of_rewritten(rewritten);
    const compiler::GraphCosts costs = compiler::costs_of(*rewritten.graph, result.sizes);
    result.flops = saturated(costs.flops);
    result.compute = costs.compute;
    result.parameter_bytes_read = saturated(costs.bytes_read);
    result.moved_bytes = saturated(costs.moved_bytes);
    result.rewritten = compiler::operator_counts(*rewritten.graph, uncovered);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;
    if (!sized.impl().runs_in_parts() && sized.impl().value_inputs().empty()) result.rewrite_error = error.what();
    uncovered = compiler::uncovered_of_read(read);
  }
  result.read = compiler::operator_counts(*read.graph, uncovered);
  result.uncovered.assign(uncovered.begin(), uncovered.end());
  return result;
}

int64_t context_extent(const Model& model, const SymbolSizes& sizes) {
  const Model sized = api::with_needed_sizes(model, sizes);
  const SymbolSizes complete = model.complete(sizes);
  const spmd::Hints hints(complete.begin(), complete.end());
  const Graph& graph = *sized.impl().rewritten().graph;
  const std::vector<spmd::InputDim> found = spmd::contexts_of(graph, spmd::Layout(graph, hints));
  if (found.empty()) return 0;
  const Expr& extent = found.front().input->shape()[static_cast<size_t>(found.front().dim)];
  return static_cast<int64_t>(spmd::hinted(extent, hints));
}

Tensors random_inputs(const Model& model, const SymbolSizes& sizes, uint64_t seed, size_t memory_limit) {
  const Model sized = api::with_needed_sizes(model, sizes);
  if (const std::vector<std::string> values = sized.impl().value_inputs(); !values.empty())
    fail("inputs", "shapes depend on the elements of input '{}', which cannot be random; give `inputs`",
         values.front());
  // Computed shapes of a model that runs in parts are not known yet.
  const Graph& graph = sized.impl().runs_in_parts() ? *model.impl().model.graph : *sized.impl().rewritten().graph;
  return compiler::random_inputs(graph, model.complete(sizes), seed, memory_limit);
}

std::vector<std::filesystem::path> files_of_written(const std::filesystem::path& folder) {
  return program_io::files_of_written_program(folder);
}

}  // namespace v1
}  // namespace tessera

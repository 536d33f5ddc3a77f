#include "tessera/inspect.h"

#include <algorithm>
#include <map>
#include <set>

#include "tessera/api/impl.h"
#include "tessera/base/error.h"
#include "tessera/base/saturated.h"
#include "tessera/compiler/tensor_info.h"
#include "tessera/ir/flow.h"
#include "tessera/kernels/kernel.h"
#include "tessera/onnx/device_annotations.h"
#include "tessera/onnx/file_facts.h"
#include "tessera/ops/op.h"
#include "tessera/program_io/written_program.h"
#include "tessera/rewrite/literal.h"
#include "tessera/rewrite/lower/lower.h"
#include "tessera/rewrite/passes.h"

namespace tessera {
inline namespace v1 {
namespace {

std::string op_name(const Node& node) {
  return node.domain.empty() ? node.op_type : node.domain + "." + node.op_type;
}

std::vector<OperatorCount> histogram(const Graph& graph, const std::set<std::string>& uncovered) {
  std::map<std::string, int64_t> counts;
  for (const auto& node : graph.nodes()) ++counts[op_name(*node)];
  std::vector<OperatorCount> sorted;
  for (const auto& [op, count] : counts) sorted.push_back({op, count, !uncovered.contains(op)});
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const OperatorCount& a, const OperatorCount& b) { return a.count > b.count; });
  return sorted;
}

// Operators that neither the compiler nor the model's own functions know, in branches and bodies, too; with `kernels`,
// also operators without a kernel.
std::set<std::string> uncovered_ops(const OnnxModel& model, const Graph& graph, bool kernels) {
  std::set<std::string> names;
  for (const auto& node : graph.nodes()) {
    if (!kernels && !node->regions().empty()) {
      for (const Graph* region : node->regions()) names.merge(uncovered_ops(model, *region, kernels));
      continue;
    }
    if (ops::is_data_sized(*node) || (!kernels && rewrite::lowering_of(*node))) continue;
    bool known = rewrite::inlined_function(model, *node) || ops::find_op(node->op_type, node->domain);
    if (!known || (kernels && !kernels::find_kernel(node->op_type, node->domain))) names.insert(op_name(*node));
  }
  return names;
}

double value_bytes(const Value* value, const SymbolSizes& sizes) {
  if (!value || !value->has_shape() || value->kind == ValueKind::expression) return 0;
  return spmd::hinted(product(value->shape()), sizes) * bits_of(value->dtype()) / 8;
}

/// Bytes of a parameter that one step reads; of a table, only those of the rows that are looked up.
double bytes_read(const Value* state, const SymbolSizes& sizes) {
  double bytes = 0;
  for (const Use& use : state->uses) {
    const ops::OpDef* op = ops::find_op(use.node->op_type, use.node->domain);
    bytes += value_bytes(op && op->table == use.index ? use.node->output() : state, sizes);
  }
  return std::min(bytes, static_cast<double>(state->data.bytes));
}

void add_costs(Inspection& result, const Graph& graph) {
  double flops = 0, bytes = 0, read = 0;
  std::map<DType, double> flops_in;
  const flow::Flow flow = flow::flow_of(graph);
  for (const auto& node : graph.nodes()) {
    const double runs = spmd::hinted(flow::runs_of(flow, node.get()), result.sizes);
    const double moves = node->domain == flow::kDomain ? 1 : runs;  // an iteration takes an item of the whole
    const double of_node = runs * spmd::hinted(ops::flops_of(*node), result.sizes);
    flops += of_node;
    if (const Value* operand = node->input(0); operand && is_float(operand->dtype()))
      flops_in[operand->dtype()] += of_node;
    for (const Value* operand : node->inputs) bytes += moves * value_bytes(operand, result.sizes);
    for (const Value* made : node->outputs) bytes += moves * value_bytes(made, result.sizes);
  }
  for (const Value* state : graph.values_of(ValueKind::state)) read += bytes_read(state, result.sizes);
  double most = 0;
  for (const auto& [dtype, of_type] : flops_in)
    if (of_type > most) {
      most = of_type;
      result.compute = dtype;
    }
  result.flops = saturated(flops);
  result.parameter_bytes_read = saturated(read);
  result.moved_bytes = saturated(bytes);
}

}  // namespace

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
  auto add_parameter = [&](const Value& value, const Tensor& data) {
    const auto bytes = static_cast<int64_t>(data.bytes);
    result.parameters += data.count();
    result.parameter_bytes += bytes;
    const TensorType type{data.dtype, Shape(data.dims.begin(), data.dims.end())};
    WeightInfo weight{compiler::info_of(value.name, type), bytes, {}};
    for (const Use& use : value.uses)
      if (const std::string op = op_name(*use.node);
          std::find(weight.used_by.begin(), weight.used_by.end(), op) == weight.used_by.end())
        weight.used_by.push_back(op);
    result.weights.push_back(std::move(weight));
  };
  for (const Value* state : read.graph->values_of(ValueKind::state)) add_parameter(*state, state->data);
  for (const auto& node : read.graph->nodes())
    if (node->is("Constant") && node->output())
      if (auto data = rewrite::literal(*node); data && rewrite::is_weight(*data)) add_parameter(*node->output(), *data);
  for (const DeviceConfiguration& configuration : device_configurations(read))
    result.device_configurations.push_back(
        fmt::format("{}: {} devices", configuration.name, configuration.num_devices));
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
    uncovered = uncovered_ops(rewritten, *rewritten.graph, true);
    add_costs(result, *rewritten.graph);
    result.rewritten = histogram(*rewritten.graph, uncovered);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;
    if (!sized.impl().runs_in_parts() && sized.impl().value_inputs().empty()) result.rewrite_error = error.what();
    uncovered = uncovered_ops(read, *read.graph, false);
  }
  result.read = histogram(*read.graph, uncovered);
  result.uncovered.assign(uncovered.begin(), uncovered.end());
  return result;
}

std::vector<std::filesystem::path> files_of_written(const std::filesystem::path& folder) {
  return program_io::files_of_written_program(folder);
}

}  // namespace v1
}  // namespace tessera

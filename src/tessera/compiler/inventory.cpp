#include "tessera/compiler/inventory.h"

#include <algorithm>
#include <map>

#include "tessera/compiler/tensor_info.h"
#include "tessera/kernels/kernel.h"
#include "tessera/onnx/export_record.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/literal.h"
#include "tessera/rewrite/lower/lower.h"
#include "tessera/rewrite/passes.h"

namespace tessera::compiler {
namespace {

std::string op_name(const Node& node) {
  return node.domain.empty() ? node.op_type : node.domain + "." + node.op_type;
}

bool is_known(const OnnxModel& model, const Node& node) {
  return rewrite::inlined_function(model, node) || ops::find_op(node.op_type, node.domain);
}

void add_uncovered_of_read(const OnnxModel& model, const Graph& graph, std::set<std::string>& names) {
  for (const auto& node : graph.nodes()) {
    const std::vector<Graph*> regions = node->regions();
    for (const Graph* region : regions) add_uncovered_of_read(model, *region, names);
    if (regions.empty() && !ops::is_data_sized(*node) && !rewrite::lowering_of(*node) && !is_known(model, *node))
      names.insert(op_name(*node));
  }
}

void add_weight(Weights& weights, const ExportRecord& record, const Value& value, const Tensor& data) {
  const auto bytes = static_cast<int64_t>(data.bytes);
  weights.elements += data.count();
  weights.bytes += bytes;
  WeightInfo weight{info_of(value.name, {data.dtype, Shape(data.dims.begin(), data.dims.end())}), bytes, {}, {}};
  for (const Use& use : value.uses)
    if (const std::string op = op_name(*use.node);
        std::find(weight.used_by.begin(), weight.used_by.end(), op) == weight.used_by.end())
      weight.used_by.push_back(op);
  weight.sources = record.of(value).sources;
  weights.all.push_back(std::move(weight));
}

}  // namespace

std::set<std::string> uncovered_of_rewritten(const OnnxModel& model) {
  std::set<std::string> names;
  for (const auto& node : model.graph->nodes())
    if (!ops::is_data_sized(*node) && (!is_known(model, *node) || !kernels::find_kernel(node->op_type, node->domain)))
      names.insert(op_name(*node));
  return names;
}

std::set<std::string> uncovered_of_read(const OnnxModel& model) {
  std::set<std::string> names;
  add_uncovered_of_read(model, *model.graph, names);
  return names;
}

std::vector<OperatorCount> operator_counts(const Graph& graph, const std::set<std::string>& uncovered) {
  std::map<std::string, int64_t> counts;
  for (const auto& node : graph.nodes()) ++counts[op_name(*node)];
  std::vector<OperatorCount> sorted;
  for (const auto& [op, count] : counts) sorted.push_back({op, count, !uncovered.contains(op)});
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const OperatorCount& a, const OperatorCount& b) { return a.count > b.count; });
  return sorted;
}

Weights weights_of(const OnnxModel& model) {
  Weights weights;
  const ExportRecord record(*model.graph);
  for (const Value* state : model.graph->values_of(ValueKind::state)) add_weight(weights, record, *state, state->data);
  for (const auto& node : model.graph->nodes())
    if (node->is("Constant") && node->output())
      if (auto data = rewrite::literal(*node); data && rewrite::is_weight(*data))
        add_weight(weights, record, *node->output(), *data);
  return weights;
}

}  // namespace tessera::compiler

#include "tessera/compiler/graph_costs.h"

#include <algorithm>
#include <map>

#include "tessera/ir/flow.h"
#include "tessera/ops/op.h"
#include "tessera/spmd/program.h"

namespace tessera::compiler {
namespace {

double value_bytes(const Value* value, const SymbolSizes& sizes) {
  if (!value || !value->has_shape() || value->kind == ValueKind::expression) return 0;
  return spmd::hinted(product(value->shape()), sizes) * bits_of(value->dtype()) / 8;
}

// Bytes of a parameter that one step reads; of a table, only those of the rows that are looked up.
double bytes_read(const Value* state, const SymbolSizes& sizes) {
  double bytes = 0;
  for (const Use& use : state->uses) {
    const ops::OpDef* op = ops::find_op(use.node->op_type, use.node->domain);
    bytes += value_bytes(op && op->table == use.index ? use.node->output() : state, sizes);
  }
  return std::min(bytes, static_cast<double>(state->data.bytes));
}

}  // namespace

GraphCosts costs_of(const Graph& graph, const SymbolSizes& sizes) {
  GraphCosts costs;
  std::map<DType, double> flops_in;
  const flow::Flow flow = flow::flow_of(graph);
  for (const auto& node : graph.nodes()) {
    const double runs = spmd::hinted(flow::runs_of(flow, node.get()), sizes);
    const double moves = node->domain == flow::kDomain ? 1 : runs;  // an iteration takes an item of the whole
    const double flops = runs * spmd::hinted(ops::flops_of(*node), sizes);
    costs.flops += flops;
    if (const Value* operand = node->input(0); operand && is_float(operand->dtype()))
      flops_in[operand->dtype()] += flops;
    for (const Value* operand : node->inputs) costs.moved_bytes += moves * value_bytes(operand, sizes);
    for (const Value* made : node->outputs) costs.moved_bytes += moves * value_bytes(made, sizes);
  }
  for (const Value* state : graph.values_of(ValueKind::state)) costs.bytes_read += bytes_read(state, sizes);
  double most = 0;
  for (const auto& [dtype, flops] : flops_in)
    if (flops > most) {
      most = flops;
      costs.compute = dtype;
    }
  return costs;
}

}  // namespace tessera::compiler

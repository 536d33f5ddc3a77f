#include "tessera/api/rank_graph.h"

#include <algorithm>

#include "tessera/api/expression_nodes.h"
#include "tessera/base/error.h"
#include "tessera/dialect/foreign.h"
#include "tessera/dialect/schema.h"
#include "tessera/dialect/tokens.h"
#include "tessera/mesh/sharding.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"
#include "tessera/spmd/program.h"

namespace tessera::api {
namespace {

bool is_collective(const Node& node) {
  return node.domain == spmd::kCommDomain || dialect::is_foreign(node);
}

bool any_collective(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) { return is_collective(*node); });
}

}  // namespace

bool has_collectives(const OnnxModel& model) {
  return any_collective(*model.graph) ||
         std::any_of(model.functions.begin(), model.functions.end(),
                     [](const Function& function) { return any_collective(*function.body); });
}

void flatten(OnnxModel& model) {
  rewrite::inline_functions(model);
  rewrite::upgrade(model);
  dialect::strip_tokens(*model.graph);
  dialect::split_variadic(*model.graph);
}

void settle_collectives(OnnxModel& model, const Mesh& mesh, std::optional<int64_t> rank) {
  Graph& graph = *model.graph;
  take_position_inputs(graph, mesh, rank);
  for (const Value* input : graph.inputs)
    if (!input->has_shape() || input->dtype() == DType::undefined)
      fail("join", "input '{}' has no element type or no rank in the file; state them (dimensions may be symbols)",
           input->name);
  // What communicates stays, whoever reads its result: passes keep what they take to be outputs.
  const size_t outputs = graph.outputs.size();
  for (const auto& node : graph.nodes())
    if (is_collective(*node) && node->output() && !graph.is_output(node->output()))
      graph.outputs.push_back(node->output());
  rewrite::lower_losses(model);
  rewrite::fold(model, [&](Node& node) {
    if (dialect::is_foreign(node)) {
      dialect::from_foreign(graph, node, mesh, rank);
    } else if (node.domain == spmd::kCommDomain) {
      dialect::check_node(node, mesh);
      dialect::infer_node(node, mesh);
    } else {
      ops::op_of(node);  // throws the error that names the operator
    }
    for (Value* result : node.outputs)
      if (result && result->content && rank)
        for (Expr& element : *result->content) element = bind_rank(element, mesh, mesh.coordinates(*rank));
  });
  for (auto pass :
       {rewrite::canonicalize, rewrite::merge_equal, rewrite::raise_normalization, rewrite::raise_activation,
        rewrite::raise_rotary, rewrite::raise_attention, rewrite::canonicalize, rewrite::merge_equal})
    pass(model);
  graph.outputs.resize(outputs);
  graph.verify("join");
}

}  // namespace tessera::api

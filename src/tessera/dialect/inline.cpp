#include "tessera/dialect/inline.h"

#include "tessera/base/error.h"
#include "tessera/dialect/foreign.h"
#include "tessera/dialect/schema.h"
#include "tessera/dialect/tokens.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"
#include "tessera/spmd/program.h"

namespace tessera::dialect {
namespace {

void settle_literal(Graph& graph, Node* node) {
  const auto* literal = node->is("Constant") ? node->get<Tensor>("value") : nullptr;
  if (!literal) return;
  Value* result = node->outputs[0];
  const std::string name = result->name;
  graph.rename(result, name + ".literal");
  graph.replace_uses(result, graph.add_constant(name, *literal));
  graph.erase(node);
}

}  // namespace

void inline_calls(OnnxModel& model) {
  rewrite::inline_functions(model);
  rewrite::drop_stamps(*model.graph);
  settle_literals(*model.graph);
}

void settle_literals(Graph& graph) {
  for (Node* node : rewrite::nodes_of(graph)) settle_literal(graph, node);
}

void settle(OnnxModel& model, const Mesh& mesh, std::optional<int64_t> rank) {
  inline_calls(model);
  Graph& graph = *model.graph;
  strip_tokens(graph);
  for (Node* node : rewrite::nodes_of(graph))
    if (is_foreign(*node)) from_foreign(graph, *node, mesh, rank);
  for (const auto& node : graph.nodes())
    if (node->domain == spmd::kCommDomain) check_node(*node, mesh);
}

}  // namespace tessera::dialect

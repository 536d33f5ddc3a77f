#include <algorithm>

#include "tessera/ops/node_builder.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

// Nodes that were appended take the place of the node that they replace.
void spell_out(Graph& graph, Node* node, const ops::OpDef& op, std::vector<Node*>& order) {
  const size_t before = graph.nodes().size();
  const auto named = std::find_if(node->outputs.begin(), node->outputs.end(), [](const Value* v) { return v; });
  ops::NodeBuilder builder(graph, (*named)->name);
  const std::vector<Value*> results = op.body(builder, *node);
  for (size_t n = before; n < graph.nodes().size(); ++n) order.push_back(graph.nodes()[n].get());
  for (size_t r = 0; r < node->outputs.size(); ++r)
    if (Value* result = node->outputs[r]) replace(graph, result, results[r]);
  graph.erase(node);
}

}  // namespace

void spell_out(Graph& graph) {
  std::vector<Node*> order;
  for (Node* node : nodes_of(graph)) {
    const ops::OpDef* op = ops::find_op(node->op_type, node->domain);
    if (op && op->body)
      spell_out(graph, node, *op, order);
    else
      order.push_back(node);
  }
  graph.arrange(order);
}

}  // namespace tessera::rewrite

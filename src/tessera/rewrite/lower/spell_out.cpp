#include <algorithm>

#include "tessera/ops/library/node_builder.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

// "" for a node without results.
std::string name_of_first(const Node& node) {
  const auto first = std::find_if(node.outputs.begin(), node.outputs.end(), [](const Value* value) { return value; });
  return first == node.outputs.end() ? "" : (*first)->name;
}

// ONNX's operator does not broadcast caches over the batch; ours may.
void repeat_caches(ops::NodeBuilder& builder, Node* node) {
  if (node->input(3)) return;
  const Shape& data = node->input(0)->shape();
  for (size_t i : {1, 2}) {
    Value* cache = node->input(i);
    const Shape whole = {data[0], data[data.size() - 2], cache->shape().back()};
    if (cache->shape() != whole) builder.graph.set_input(node, i, builder.expand(cache, whole));
  }
}

}  // namespace

void spell_out(Graph& graph) {
  std::vector<Node*> order;
  for (Node* node : nodes_of(graph)) {
    const ops::OpDef* op = ops::find_op(node->op_type, node->domain);
    const size_t before = graph.nodes().size();
    ops::NodeBuilder builder(graph, name_of_first(*node));
    std::vector<Value*> results;
    if (op && op->body) results = op->body(builder, *node);
    if (node->is("RotaryEmbedding")) repeat_caches(builder, node);
    // New nodes take the node's place, or stand before it.
    for (size_t n = before; n < graph.nodes().size(); ++n) order.push_back(graph.nodes()[n].get());
    if (results.empty()) {
      order.push_back(node);
      continue;
    }
    std::vector<std::string> names(node->outputs.size());
    for (size_t r = 0; r < names.size(); ++r) {
      Value* result = node->outputs[r];
      if (result) names[r] = result->name;
      if (result) replace(graph, result, results[r]);
    }
    graph.erase(node);
    for (size_t r = 0; r < names.size(); ++r)
      if (!names[r].empty() && !graph.find(names[r])) graph.rename(results[r], names[r]);
  }
  graph.arrange(order);
}

}  // namespace tessera::rewrite

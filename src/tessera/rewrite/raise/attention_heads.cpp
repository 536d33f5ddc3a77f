#include "tessera/rewrite/raise/attention_heads.h"

#include "tessera/base/error.h"
#include "tessera/ops/attention.h"
#include "tessera/rewrite/edit.h"

namespace tessera::rewrite {

Node* with_heads_apart(Graph& graph, Node* attention) {
  const ops::AttentionDims dims = ops::attention_dims(*attention);
  if (!dims.packed) return attention;
  Value* packed = attention->outputs[0];
  ops::NodeBuilder b(graph, packed->name, attention);
  std::vector<Value*> operands = attention->inputs;
  for (size_t i : {ops::kQuery, ops::kKey, ops::kValue})
    operands[i] = ops::with_heads_apart(b, operands[i], i == ops::kQuery ? dims.heads : dims.kv_heads);
  std::vector<Attribute> attributes = attention->attributes;
  std::erase_if(attributes, [](const Attribute& a) { return a.name == "q_num_heads" || a.name == "kv_num_heads"; });
  Node* apart = emit_node(graph, "Attention", operands, attention, attributes, packed->name, attention->outputs.size());
  std::vector<Value*> results = apart->outputs;
  results[0] = ops::with_heads_together(b, results[0], packed);
  for (size_t i = 0; i < results.size(); ++i)
    if (Value* old = attention->outputs[i])
      check(replace(graph, old, results[i]), "a new result replaces an old one of its rank");
  graph.erase(attention);
  return apart;
}

}  // namespace tessera::rewrite

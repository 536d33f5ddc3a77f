#include "tessera/rewrite/attention_heads.h"

#include "tessera/base/error.h"
#include "tessera/ops/node_builder.h"
#include "tessera/rewrite/edit.h"

namespace tessera::rewrite {

Node* with_heads_apart(Graph& graph, Node* attention) {
  if (attention->inputs.at(0)->rank() != 3) return attention;
  ops::NodeBuilder b(graph, "generate", attention);
  std::vector<Value*> operands = attention->inputs;
  for (size_t i = 0; i < 3; ++i) {
    const int64_t heads = attention->get_int(i == 0 ? "q_num_heads" : "kv_num_heads", 0);
    const Shape shape = operands[i]->shape();
    const auto width = heads > 0 ? Expr::exact_divide(shape[2], Expr(heads)) : std::nullopt;
    if (!width)
      fail("generate", "{}: '{}' does not divide into {} heads", attention->label(), operands[i]->name, heads);
    operands[i] = b.transpose(b.reshape(operands[i], {shape[0], shape[1], heads, *width}), {0, 2, 1, 3});
  }
  std::vector<Attribute> attributes;
  for (const Attribute& given : attention->attributes)
    if (given.name != "q_num_heads" && given.name != "kv_num_heads") attributes.push_back(given);
  Node* apart =
      emit_node(graph, "Attention", operands, attention, attributes, attention->name, attention->outputs.size());
  const Shape whole = attention->outputs[0]->shape();
  std::vector<Value*> results = apart->outputs;
  results[0] = b.reshape(b.transpose(results[0], {0, 2, 1, 3}), whole);
  for (size_t i = 0; i < results.size(); ++i)
    if (Value* old = attention->outputs[i]; old && !replace(graph, old, results[i]))
      fail("generate", "the output '{}' has two names", old->name);
  graph.erase(attention);
  return apart;
}

}  // namespace tessera::rewrite

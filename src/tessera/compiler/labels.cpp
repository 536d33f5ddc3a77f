#include "tessera/compiler/labels.h"

#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

namespace tessera::compiler {

Value* labelled_copy(Graph& graph, Value* value, const std::string& label, const Node* before) {
  Node* copy = graph.add_node("Identity", {value}, {value->name + ".as"}, "", before);
  copy->set(rewrite::kLabel, label);
  copy->outputs[0]->type = value->type;
  return copy->outputs[0];
}

Value* labelled_instead(Graph& graph, Value* value, const std::string& label) {
  const Node* next = value->producer         ? rewrite::node_after(graph, value->producer)
                     : graph.nodes().empty() ? nullptr
                                             : graph.nodes().front().get();
  Value* copy = labelled_copy(graph, value, label, next);
  graph.replace_uses(value, copy);
  graph.set_input(copy->producer, 0, value);
  return copy;
}

}  // namespace tessera::compiler

#include "tessera/program_io/compute_sizes.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/program_io/expression_nodes.h"

namespace tessera::program_io {

void compute_sizes(Graph& graph) {
  const std::vector<Value*> inputs = graph.inputs;
  ExpressionNodes nodes(graph, [](const std::string& axis) -> Value* {
    fail("write", "the model reads its index along the axis '{}'", axis);
  });
  for (Value* expression : graph.values_of(ValueKind::expression)) {
    if (expression->uses.empty()) continue;
    Value* made = nodes.value_of(expression->name, *expression->content, expression->rank() == 0, expression->dtype());
    if (made != expression) graph.replace_uses(expression, made);
  }
  const std::vector<Value*> all = graph.inputs;
  for (Value* symbol : all) {
    if (!symbol->name.starts_with(kSymbolPrefix)) continue;
    const std::string name = symbol->name.substr(kSymbolPrefix.size());
    for (Value* input : inputs) {
      const Shape& shape = input->shape();
      const auto found = std::find_if(shape.begin(), shape.end(), [&](const Expr& e) { return e.str() == name; });
      if (found == shape.end()) continue;
      Node* extent = graph.add_node("Shape", {input}, {name + ".extent"});
      const int64_t at = found - shape.begin();
      extent->set("start", at);
      extent->set("end", at + 1);
      extent->outputs[0]->type = {DType::int64, Shape{1}};
      Node* scalar = graph.add_node("Squeeze", {extent->outputs[0]}, {name + ".size"});
      scalar->outputs[0]->type = {DType::int64, Shape{}};
      graph.replace_uses(symbol, scalar->outputs[0]);
      break;
    }
    std::erase(graph.inputs, symbol);
    graph.erase(symbol);
  }
  graph.erase_dead();
  graph.sort();
}

}  // namespace tessera::program_io

#include "tessera/train/batch_norm.h"

#include "tessera/rewrite/edit.h"

namespace tessera::train {

bool trains(const Node& batch_normalization, BatchNorm how) {
  return how == BatchNorm::as_stated ? batch_normalization.get_int("training_mode", 0) != 0 : how == BatchNorm::train;
}

void for_each_statistic(const Graph& graph, BatchNorm how,
                        const std::function<void(Node* node, size_t operand, Value* state)>& visit) {
  for (Node* node : rewrite::nodes_of(graph)) {
    if (!node->is("BatchNormalization") || !trains(*node, how)) continue;
    for (size_t operand : {3, 4})
      if (Value* value = node->input(operand); value && value->kind == ValueKind::state) visit(node, operand, value);
  }
}

}  // namespace tessera::train

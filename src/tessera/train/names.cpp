#include "tessera/train/names.h"

#include "tessera/base/error.h"

namespace tessera::train {

void claim_name(Graph& graph, std::string_view name) {
  Value* other = graph.find(name);
  if (!other) return;
  if (other->kind != ValueKind::result)
    fail("train", "the model has {} '{}', a name that the training step needs for a tensor of its own; rename it",
         other->kind == ValueKind::input ? "an input" : "a parameter", name);
  graph.rename(other, fmt::format("{}.of_model", name));
}

Value* new_state(Graph& graph, std::string_view name, Tensor data) {
  claim_name(graph, name);
  return graph.add_state(name, std::move(data));
}

}  // namespace tessera::train

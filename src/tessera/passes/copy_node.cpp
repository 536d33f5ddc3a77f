#include "tessera/passes/copy_node.h"

namespace tessera::passes {

Node* copy_node(spmd::Program& program, const Node& node, std::vector<Value*> operands, const Node* before) {
  auto copy = std::make_unique<Node>(node);
  if (!copy->name.empty()) copy->name += ".again";
  if (before) copy->seat = {node.seat.stage, before->seat.micro_batch, before->seat.segment};
  copy->inputs = std::move(operands);
  for (Value*& result : copy->outputs) {
    if (!result) continue;
    Value* twin = program.graph->add_value(result->name + ".again", ValueKind::result, result->type);
    twin->content = result->content;
    if (const auto placement = program.placements.find(result); placement != program.placements.end())
      program.placements.emplace(twin, placement->second);
    result = twin;
  }
  return program.graph->adopt_node(std::move(copy), before);
}

}  // namespace tessera::passes

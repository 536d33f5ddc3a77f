#include "tessera/ops/experts.h"

#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/gradients/through.h"

/// The gradient of a mixture of experts.
namespace tessera::ops {

// Those of the form in which every expert computes all tokens. Its experts are a dimension like any other, so that it
// is split as the matrices are, but a token costs as much as if it had chosen all experts.
void experts_gradient(GradientBuilder& b) {
  if (has_codes(b.node)) b.refuse("its matrices are codes; train a model of floats");
  const size_t before = b.graph.nodes().size();
  NodeBuilder forward(b.graph, "every." + b.y()->name);
  Value* y = every_expert(forward, b.node);
  std::vector<Node*> nodes;
  for (size_t n = before; n < b.graph.nodes().size(); ++n) nodes.push_back(b.graph.nodes()[n].get());
  std::vector<Value*> wanted;
  std::vector<size_t> operands;
  for (size_t i = 0; i < b.node.inputs.size(); ++i)
    if (b.wants(i)) wanted.push_back(b.x(i)), operands.push_back(i);
  const std::vector<Value*> found = gradients_through(b.graph, nodes, {{y, b.g()}}, wanted);
  for (size_t i = 0; i < operands.size(); ++i)
    if (found[i]) b.give(operands[i], found[i]);
}

}  // namespace tessera::ops

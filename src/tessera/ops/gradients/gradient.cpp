#include "tessera/ops/gradients/gradient.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/op.h"

namespace tessera::ops {

namespace {

// What gradients' nodes are named after.
const std::string& name_of_results(const Node& node) {
  const auto first = std::find_if(node.outputs.begin(), node.outputs.end(), [](const Value* result) { return result; });
  return (*first)->name;
}

}  // namespace

GradientBuilder::GradientBuilder(Graph& in, Node& of, std::vector<Value*> of_results, std::vector<bool> wanted)
    : NodeBuilder(in, "grad." + name_of_results(of)),
      node(of),
      of_results_(std::move(of_results)),
      wanted_(std::move(wanted)),
      given_(node.inputs.size(), nullptr) {}

void GradientBuilder::refuse(std::string_view why) const {
  fail("gradient", "{} has no gradient: {}", node.label(), why);
}

Value* GradientBuilder::made(size_t r) {
  if (node.output(r)) return node.output(r);
  if (node.outputs.size() <= r) node.outputs.resize(r + 1, nullptr);
  Value* result = graph.add_value(fmt::format("{}.result{}", name_of_results(node), r), ValueKind::result);
  result->producer = &node;
  node.outputs[r] = result;
  infer_results(op_of(node), node);
  return result;
}

Value* GradientBuilder::g_or_zeros(size_t r) {
  return g(r) ? g(r) : zeros(y(r)->dtype(), y(r)->shape());
}

void GradientBuilder::give(size_t i, Value* gradient) {
  if (!wants(i)) return;
  Value* value = expand(sum_to(gradient, x(i)->shape()), x(i)->shape());
  given_[i] = given_[i] ? add(given_[i], value) : value;
}

}  // namespace tessera::ops

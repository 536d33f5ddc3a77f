#include "tessera/spmd/layout/equal_extents.h"

#include "tessera/ops/op.h"

namespace tessera::spmd {
namespace {

// Whether an operand may have an extent of 1 where the result has another. True also for operators that do not
// broadcast: they refuse the 1 themselves when the model is compiled for that size.
bool broadcasts(const Node& node, size_t operand, size_t dim) {
  return dim + ops::op_of(node).fixed_dims < node.inputs[operand]->rank();
}

class Collector {
 public:
  explicit Collector(const Node& node) : node_(node) {}

  void along_factors(const ops::Rule& rule) {
    auto side = [&](const std::vector<std::vector<ops::DimFactors>>& tensors, const std::vector<Value*>& values,
                    bool operands) {
      for (size_t t = 0; t < tensors.size() && t < values.size(); ++t)
        for (size_t d = 0; values[t] && values[t]->has_shape() && d < tensors[t].size(); ++d)
          if (tensors[t][d].size() == 1 && !ops::traits_of(rule.factors[tensors[t][d][0]].kind).by_window)
            add(rule.factors[tensors[t][d][0]].size, values[t]->shape()[d], operands && broadcasts(node_, t, d));
    };
    side(rule.operands, node_.inputs, true);
    side(rule.results, node_.outputs, false);
  }

  // If an operand broadcasts to the result, but not the result to it, the operand's extent is 1 whenever the result's
  // is.
  void along_ones() {
    const Value* result = node_.output();
    if (!result || !result->has_shape()) return;
    for (size_t i : ops::op_of(node_).broadcast_one_way) {
      const Value* operand = node_.input(i);
      if (!operand || !operand->has_shape() || operand->rank() > result->rank()) continue;
      for (size_t d = 0; d < operand->rank(); ++d)
        if (result->shape()[result->rank() - operand->rank() + d].is(1)) add(operand->shape()[d], 1, false);
    }
  }

  // Runs inference again, into values of its own.
  void as_stated() {
    Node again = node_;
    std::vector<Value> results(node_.outputs.size());
    for (size_t r = 0; r < results.size(); ++r) {
      if (!node_.outputs[r]) continue;
      results[r].type = node_.outputs[r]->type;  // a result whose shape depends on data keeps its declared shape
      again.outputs[r] = &results[r];
    }
    ops::op_of(node_).infer(again);
    for (size_t r = 0; r < results.size(); ++r) {
      if (!node_.outputs[r] || results[r].rank() != node_.outputs[r]->rank()) continue;
      for (size_t d = 0; d < results[r].rank(); ++d) add(node_.outputs[r]->shape()[d], results[r].shape()[d], false);
    }
  }

  std::vector<ExtentEquality> found() { return std::move(found_); }

 private:
  void add(const Expr& a, const Expr& b, bool may_be_one) {
    if (a == b) return;
    for (ExtentEquality& known : found_)
      if (known.a == a && known.b == b) {
        known.broadcasts &= may_be_one;
        return;
      }
    found_.push_back({a, b, node_.label(), may_be_one});
  }

  const Node& node_;
  std::vector<ExtentEquality> found_;
};

}  // namespace

std::vector<ExtentEquality> equal_extents_of(const Node& node, const ops::Rule& rule) {
  Collector collector(node);
  collector.along_factors(rule);
  collector.along_ones();
  collector.as_stated();
  return collector.found();
}

}  // namespace tessera::spmd

#pragma once

#include <string_view>
#include <vector>

#include "tessera/ops/library/node_builder.h"

/// How operators' gradients are written: nodes of ordinary operators that compute a vector-Jacobian product.
namespace tessera::ops {

/// Builds the gradients of one node's operands from those of its results: for y = f(x) and a scalar loss L, dL/dx from
/// dL/dy. All are of the type and shape of the value that they belong to. Nodes are appended to the graph, typed.
///
/// Where a function has no derivative, gradients are PyTorch's: ReLU and |x| have 0 at 0, equal maxima share evenly.
class GradientBuilder : public NodeBuilder {
 public:
  Node& node;

  /// `of_results` holds null where the loss does not depend on a result; `wanted` says of which operands a gradient is
  /// asked. At least one of each is there.
  GradientBuilder(Graph& graph, Node& node, std::vector<Value*> of_results, std::vector<bool> wanted);

  /// Operand i, a result, and the gradient of a result (null if there is none).
  Value* x(size_t i = 0) const { return node.input(i); }
  Value* y(size_t r = 0) const { return node.output(r); }
  Value* g(size_t r = 0) const { return r < of_results_.size() ? of_results_[r] : nullptr; }
  /// The same result, computed even if the model does not use it; null if the operator lacks it in this form.
  Value* made(size_t r);
  /// Zeros in place of the gradient of a result on which the loss does not depend.
  Value* g_or_zeros(size_t r);
  bool wants(size_t i) const { return i < wanted_.size() && wanted_[i]; }

  /// States the gradient of operand i. Sums it over the dimensions along which the operand was broadcast; repeats it
  /// along those that it lacks itself. Ignored if the operand needs none.
  void give(size_t i, Value* gradient);
  /// What was given, per operand; null where nothing was.
  const std::vector<Value*>& given() const { return given_; }

  /// Throws a user error: this form of the operator has no gradient, `why` says which and names the fix.
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  std::vector<Value*> of_results_;
  std::vector<bool> wanted_;
  std::vector<Value*> given_;
};

}  // namespace tessera::ops

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::ops {

/// Appends typed nodes to a graph: arithmetic and changes of shape, in the operators' newest forms.
class NodeBuilder {
 public:
  Graph& graph;

  /// Results are named "PREFIX.Operator"; nodes come at the end, or before `before`.
  NodeBuilder(Graph& in, std::string prefix, const Node* before = nullptr)
      : graph(in), prefix_(std::move(prefix)), before_(before) {}

  Value* emit(std::string_view op_type, std::vector<Value*> operands, std::vector<Attribute> attributes = {},
              size_t results = 1);
  /// The same for an operator of any domain, with all its results.
  std::vector<Value*> emit_all(std::string_view domain, std::string_view op_type, std::vector<Value*> operands,
                               std::vector<Attribute> attributes, size_t results);

  // Arithmetic. Numbers take the type of the other operand.
  Value* number(const Value* like, double value) { return graph.constant_scalar(like->dtype(), value); }
  Value* add(Value* a, Value* b) { return emit("Add", {a, b}); }
  Value* add(Value* a, double b) { return add(a, number(a, b)); }
  Value* sub(Value* a, Value* b) { return emit("Sub", {a, b}); }
  Value* sub(double a, Value* b) { return sub(number(b, a), b); }
  Value* mul(Value* a, Value* b) { return emit("Mul", {a, b}); }
  Value* mul(Value* a, double b) { return b == 1 ? a : mul(a, number(a, b)); }
  Value* div(Value* a, Value* b) { return emit("Div", {a, b}); }
  Value* neg(Value* a) { return emit("Neg", {a}); }
  Value* unary(std::string_view op_type, Value* a) { return emit(op_type, {a}); }
  Value* less(Value* a, double b) { return emit("Less", {a, number(a, b)}); }
  Value* greater(Value* a, double b) { return emit("Greater", {a, number(a, b)}); }
  Value* where(Value* condition, Value* a, Value* b) { return emit("Where", {condition, a, b}); }
  Value* where(Value* condition, Value* a, double b) { return where(condition, a, number(a, b)); }
  /// Both of two conditions; null stands for true.
  Value* both(Value* a, Value* b) { return a && b ? emit("And", {a, b}) : a ? a : b; }
  Value* cast(Value* a, DType to);

  // Shapes.
  Value* shape_operand(const Shape& shape);
  Value* reshape(Value* a, const Shape& shape);
  /// A list of one as a number; all else as it is, null for null.
  Value* as_number(Value* a);
  Value* expand(Value* a, const Shape& shape);
  Value* transpose(Value* a, const std::vector<int64_t>& permutation);
  /// The last two dimensions exchanged.
  Value* turn(Value* a);
  Value* zeros(DType dtype, const Shape& shape);
  /// Sums over these dimensions; they stay with extent 1 if `keep`.
  Value* sum(Value* a, const std::vector<int64_t>& axes, bool keep = true);
  Value* mean(Value* a, const std::vector<int64_t>& axes);
  /// The sum over the dimensions along which a tensor of shape `to` was broadcast to `a`, in the shape `to`.
  Value* sum_to(Value* a, const Shape& to);
  /// Elements [begin, end) of one dimension.
  Value* slice(Value* a, int64_t axis, const Expr& begin, const Expr& end);
  /// Zeros of a shape, to which the slices of `a` along dimension `axis` are added at those of the int64 `indices` (of
  /// any rank r: their dimensions take the place of `axis` in `a`). Repeated indices add up.
  Value* scatter_along(Value* a, Value* indices, int64_t axis, const Shape& shape);
  /// a · matrixᵀ along one dimension: [..., m, ...] by [n, m] gives [..., n, ...].
  Value* multiply_along(Value* a, Value* matrix, size_t axis);
  /// An expression as a scalar of that type.
  Value* scalar(DType dtype, const Expr& value);
  /// 0, 1, … count - 1, of int64.
  Value* range(const Expr& count);

 private:
  std::string prefix_;
  const Node* before_;
};

/// The order 0 … rank-1.
std::vector<int64_t> all_axes(size_t rank);
/// The same without dimension 1.
std::vector<int64_t> all_but_channels(size_t rank);

}  // namespace tessera::ops

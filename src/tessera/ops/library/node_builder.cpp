#include "tessera/ops/library/node_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tessera/ops/op.h"

namespace tessera::ops {

std::vector<int64_t> all_axes(size_t rank) {
  std::vector<int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), int64_t{0});
  return axes;
}

std::vector<int64_t> all_but_channels(size_t rank) {
  std::vector<int64_t> axes = all_axes(rank);
  axes.erase(axes.begin() + 1);
  return axes;
}

Value* NodeBuilder::emit(std::string_view op_type, std::vector<Value*> operands, std::vector<Attribute> attributes,
                         size_t results) {
  return emit_all("", op_type, std::move(operands), std::move(attributes), results).front();
}

std::vector<Value*> NodeBuilder::emit_all(std::string_view domain, std::string_view op_type,
                                          std::vector<Value*> operands, std::vector<Attribute> attributes,
                                          size_t results) {
  const std::vector<std::string> names(results, fmt::format("{}.{}", prefix_, op_type));
  Node* made = graph.add_node(op_type, std::move(operands), names, domain, before_);
  made->attributes = std::move(attributes);
  infer_results(op_of(*made), *made);
  return made->outputs;
}

Value* NodeBuilder::cast(Value* a, DType to) {
  return a->dtype() == to ? a : emit("Cast", {a}, {{"to", static_cast<int64_t>(to), ""}});
}

Value* NodeBuilder::shape_operand(const Shape& shape) {
  if (auto extents = constants_of(shape)) return graph.constant_int64(*extents);
  return graph.add_expression("shape", shape);
}

Value* NodeBuilder::reshape(Value* a, const Shape& shape) {
  if (a->shape() == shape) return a;
  // An extent of 0 is meant, and no copy of the operand's.
  return emit("Reshape", {a, shape_operand(shape)}, {{"allowzero", int64_t{1}, ""}});
}

Value* NodeBuilder::as_number(Value* a) {
  return a && a->rank() == 1 && a->shape()[0].is(1) ? reshape(a, {}) : a;
}

Value* NodeBuilder::expand(Value* a, const Shape& shape) {
  return a->shape() == shape ? a : emit("Expand", {a, shape_operand(shape)});
}

Value* NodeBuilder::transpose(Value* a, const std::vector<int64_t>& permutation) {
  if (std::is_sorted(permutation.begin(), permutation.end())) return a;
  return emit("Transpose", {a}, {{"perm", permutation, ""}});
}

Value* NodeBuilder::turn(Value* a) {
  std::vector<int64_t> swapped = all_axes(a->rank());
  std::swap(swapped.at(a->rank() - 1), swapped.at(a->rank() - 2));
  return transpose(a, swapped);
}

Value* NodeBuilder::zeros(DType dtype, const Shape& shape) {
  return expand(graph.constant_scalar(dtype, 0), shape);
}

Value* NodeBuilder::sum(Value* a, const std::vector<int64_t>& axes, bool keep) {
  if (axes.empty()) return a;
  return emit("ReduceSum", {a, graph.constant_int64(axes)}, {{"keepdims", int64_t{keep}, ""}});
}

Value* NodeBuilder::mean(Value* a, const std::vector<int64_t>& axes) {
  if (axes.empty()) return a;
  return emit("ReduceMean", {a, graph.constant_int64(axes)}, {{"keepdims", int64_t{1}, ""}});
}

Value* NodeBuilder::sum_to(Value* a, const Shape& to) {
  const Shape& from = a->shape();
  if (from.size() < to.size()) return a;  // it will be expanded
  const size_t leading = from.size() - to.size();
  std::vector<int64_t> axes;
  bool within = false;
  for (size_t d = 0; d < from.size(); ++d) {
    const bool broadcast = d >= leading && to[d - leading].is(1) && !from[d].is(1);
    within |= broadcast;
    if (d < leading || broadcast) axes.push_back(static_cast<int64_t>(d));
  }
  if (axes.empty()) return a;
  return within ? reshape(sum(a, axes), to) : sum(a, axes, false);
}

Value* NodeBuilder::slice(Value* a, int64_t axis, const Expr& begin, const Expr& end) {
  return emit("Slice", {a, shape_operand({begin}), shape_operand({end}), graph.constant_int64({axis})});
}

Value* NodeBuilder::scatter_along(Value* a, Value* indices, int64_t axis, const Shape& shape) {
  // ScatterND writes along leading dimensions: `axis` comes first, and so do the indices' dimensions.
  const size_t r = indices->rank();
  std::vector<int64_t> to_front, there, back(shape.size());
  for (size_t d = 0; d < r; ++d) to_front.push_back(axis + static_cast<int64_t>(d));
  for (size_t d = 0; d < a->rank(); ++d)
    if (d < static_cast<size_t>(axis) || d >= static_cast<size_t>(axis) + r)
      to_front.push_back(static_cast<int64_t>(d));
  there.push_back(axis);
  for (size_t d = 0; d < shape.size(); ++d)
    if (d != static_cast<size_t>(axis)) there.push_back(static_cast<int64_t>(d));
  Shape turned;
  for (size_t d = 0; d < there.size(); ++d) {
    turned.push_back(shape[static_cast<size_t>(there[d])]);
    back[static_cast<size_t>(there[d])] = static_cast<int64_t>(d);
  }
  Shape column = indices->shape();
  column.push_back(1);
  Value* scattered = emit("ScatterND", {zeros(a->dtype(), turned), reshape(indices, column), transpose(a, to_front)},
                          {{"reduction", std::string("add"), ""}});
  return transpose(scattered, back);
}

Value* NodeBuilder::multiply_along(Value* a, Value* matrix, size_t axis) {
  std::vector<int64_t> swapped = all_axes(a->rank());
  std::swap(swapped.at(axis), swapped.back());
  return transpose(emit("MatMul", {transpose(a, swapped), transpose(matrix, {1, 0})}), swapped);
}

Value* NodeBuilder::scalar(DType dtype, const Expr& value) {
  if (const auto known = value.constant()) return graph.constant_scalar(dtype, static_cast<double>(*known));
  return cast(graph.add_expression("extent", {value}, true), dtype);
}

Value* NodeBuilder::range(const Expr& count) {
  return emit("Range", {graph.constant_int64({0}, true), scalar(DType::int64, count), graph.constant_int64({1}, true)});
}

}  // namespace tessera::ops

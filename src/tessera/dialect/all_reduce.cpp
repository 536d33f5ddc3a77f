#include "tessera/dialect/forms.h"

namespace tessera::dialect {
namespace {

Spec part_of(const Spec& whole, std::string_view op, std::string_view form, std::vector<std::string> axes) {
  Spec spec = whole;
  spec.op = op;
  spec.form = form;
  spec.axes = std::move(axes);
  spec.dim = 0;
  return spec;
}

}  // namespace

// The data as one row of elements, in n blocks whose sizes differ by at most one: 7 elements among 3 members are blocks
// of 3, 2, 2, and 2 elements are blocks of 1, 1, 0. Reduce-scatter leaves each member the sum of its block, all-gather
// gives all blocks to all.
Value* ring_all_reduce(Body& body) {
  const Spec& spec = body.spec();
  Value* data = body.operand("data");
  Value* row = body.flat(data);
  Value* bounds = body.balanced_bounds(body.shape_of(row), body.members());
  Value* block = body.call(part_of(spec, "ReduceScatter", "ring", spec.axes), {row, bounds});
  Value* whole = body.call(part_of(spec, "AllGather", "ring", spec.axes), {block, bounds});
  return body.reshape(whole, body.shape_of(data));
}

// The last axis is the inner one, whose members are near. Each member reduces a block within the inner group; equal
// blocks are reduced across the outer axes; the inner group gathers the results. Over 2 hosts x 4 ranks, each rank
// sends a quarter of the data between hosts. A mean is taken at the end, since two roundings of integers differ from
// one.
Value* hierarchical_all_reduce(Body& body) {
  Spec parts = body.spec();
  if (parts.reduction == Reduction::mean) parts.reduction = Reduction::sum;
  std::vector<std::string> outer = parts.axes, inner = {parts.axes.back()};
  outer.pop_back();
  Value* data = body.operand("data");
  Value* row = body.flat(data);
  Value* bounds = body.balanced_bounds(body.shape_of(row), digits_of(inner, body.mesh()).size);
  Value* block = body.call(part_of(parts, "ReduceScatter", "ring", inner), {row, bounds});
  block = body.call(part_of(parts, "AllReduce", "ring", outer), {block});
  Value* whole = body.call(part_of(parts, "AllGather", "ring", inner), {block, bounds});
  return body.reshape(body.mean(whole), body.shape_of(data));
}

// Sums of 16-bit floats are taken in float32 and rounded once, at the end.
Value* float32_reduction(Body& body) {
  Spec spec = body.spec();
  spec.float32 = false;
  Value* data = body.operand("data");
  constexpr auto kFloat32 = static_cast<int64_t>(DType::float32);
  std::vector<Value*> operands = {body.op("Cast", {data}, {{"to", kFloat32, ""}})};
  if (spec.op == "ReduceScatter") operands.push_back(body.operand("bounds"));
  return body.op("CastLike", {body.call(spec, operands, DType::float32), data});
}

}  // namespace tessera::dialect

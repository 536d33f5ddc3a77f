#include "tessera/base/error.h"
#include "tessera/ops/dims.h"
#include "tessera/ops/infer.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower.h"

namespace tessera::rewrite {
namespace {

using ops::fail_node;
using Values = std::vector<Value*>;

Values dynamic_quantize(Lowerer& l) {
  return quantize_dynamically(l.b, l.in(0));
}

// x - zero point in `type`. A list of zero points is along dimension `axis`.
Value* centered(Lowerer& l, size_t x, size_t zero_point, int64_t axis, DType type) {
  Value* wide = l.b.cast(l.in(x), type);
  if (!l.has(zero_point)) return wide;
  Value* zero = l.b.cast(l.in(zero_point), type);
  if (zero->rank() == 1 && !zero->shape().at(0).is(1)) {
    Shape shape(wide->rank(), Expr(1));
    shape.at(static_cast<size_t>(axis)) = zero->shape().at(0);
    zero = l.b.reshape(zero, shape);
  } else if (zero->rank() == 1) {
    zero = l.b.reshape(zero, {});
  }
  return l.b.sub(wide, zero);
}

// Whether the product is one of matrices whose zero points are numbers or lists, as MatMulInteger's record has it.
bool is_plain(const Node& node, size_t a, size_t a_zero, size_t b, size_t b_zero) {
  const auto is_list = [&](size_t zero) { return !node.input(zero) || node.input(zero)->rank() <= 1; };
  return node.input(a)->rank() >= 2 && node.input(b)->rank() >= 2 && is_list(a_zero) && is_list(b_zero);
}

Value* integer_product(Lowerer& l, size_t a, size_t a_zero, size_t b, size_t b_zero) {
  if (is_plain(l.node, a, a_zero, b, b_zero))
    return l.b.emit("MatMulInteger", {l.in(a), l.in(b), l.in(a_zero), l.in(b_zero)});
  const size_t a_rank = l.in(a)->rank(), b_rank = l.in(b)->rank();
  if (a_rank < 1 || b_rank < 1) fail_node(l.node, "its operands must have dimensions");
  return l.b.emit("MatMul", {centered(l, a, a_zero, a_rank > 1 ? static_cast<int64_t>(a_rank) - 2 : 0, DType::int32),
                             centered(l, b, b_zero, static_cast<int64_t>(b_rank) - 1, DType::int32)});
}

bool is_unusual_product(const Node& node) {
  return node.input(0) && node.input(1) && node.input(0)->has_shape() && node.input(1)->has_shape() &&
         !is_plain(node, 0, 2, 1, 3);
}

Values matmul_integer(Lowerer& l) {
  return {integer_product(l, 0, 2, 1, 3)};
}

// A list of scales as one of [rank] dimensions, along `axis`; float32.
Value* scale_along(Lowerer& l, size_t operand, size_t rank, size_t axis) {
  Value* scale = l.b.cast(l.in(operand), DType::float32);
  if (scale->rank() != 1) return scale;
  if (scale->shape().at(0).is(1)) return l.b.reshape(scale, {});
  Shape shape(rank, Expr(1));
  shape.at(axis) = scale->shape().at(0);
  return l.b.reshape(scale, shape);
}

Value* quantized(Lowerer& l, Value* y, size_t scale, size_t zero_point) {
  Value* by = l.b.cast(l.in(scale), DType::float32);
  if (by->rank() == 1 && by->shape().at(0).is(1)) by = l.b.reshape(by, {});
  Value* zero = l.in(zero_point);
  if (zero->rank() == 1 && zero->shape().at(0).is(1)) zero = l.b.reshape(zero, {});
  return l.b.emit("QuantizeLinear", {y, by, zero});
}

Values qlinear_matmul(Lowerer& l) {
  Value* sums = l.b.cast(integer_product(l, 0, 2, 3, 5), DType::float32);
  const size_t rank = sums->rank();
  Value* scale = l.b.mul(scale_along(l, 1, rank, rank > 1 ? rank - 2 : 0), scale_along(l, 4, rank, rank - 1));
  return {quantized(l, l.b.mul(sums, scale), 6, 7)};
}

// Along the channels of an image of that rank.
Value* beside_channels(Lowerer& l, Value* list, size_t rank) {
  Shape shape(rank, Expr(1));
  shape.at(1) = list->shape().at(0);
  return l.b.reshape(list, shape);
}

Values qlinear_conv(Lowerer& l) {
  Value* sums = l.b.emit("ConvInteger", {l.in(0), l.in(3), l.in(2), l.in(5)}, l.node.attributes);
  const size_t rank = sums->rank();
  if (l.has(8)) sums = l.b.add(sums, beside_channels(l, l.in(8), rank));
  Value* scale = l.b.mul(scale_along(l, 1, rank, 1), scale_along(l, 4, rank, 1));
  return {quantized(l, l.b.mul(l.b.cast(sums, DType::float32), scale), 6, 7)};
}

constexpr std::string_view kMicrosoft = "com.microsoft";
constexpr size_t kRowOrder = 4, kBias = 5;  // operands of MatMulNBits

// A bias, and lists of scales and zero points, which older quantizers write.
bool is_plain_nbits(const Node& node) {
  const auto is_matrix = [&](size_t index) {
    return !node.input(index) || !node.input(index)->has_shape() || node.input(index)->rank() == 2;
  };
  return !node.input(kRowOrder) && !node.input(kBias) && is_matrix(2) && is_matrix(3);
}
bool is_unusual_nbits(const Node& node) {
  return node.input(1) && node.input(1)->has_shape() && !is_plain_nbits(node);
}

Values matmul_nbits(Lowerer& l) {
  if (l.has(kRowOrder)) fail_node(l.node, "its rows are in another order (g_idx), which is not supported");
  const Expr n = l.in(1)->shape().at(0);
  const auto matrix = [&](size_t index) {
    Value* list = l.in(index);
    if (!list || list->rank() == 2) return list;
    const auto columns = Expr::exact_divide(ops::elements_of(*list), n);
    if (!columns)
      fail_node(l.node, "its operand {} has {} elements for {} columns", index, ops::elements_of(*list).str(), n.str());
    return l.b.reshape(list, {n, *columns});
  };
  Value* y = l.b.emit_all(kMicrosoft, "MatMulNBits", {l.in(0), l.in(1), matrix(2), matrix(3)}, l.node.attributes, 1)[0];
  return {l.has(kBias) ? l.b.add(y, l.in(kBias)) : y};
}

}  // namespace

std::vector<Value*> quantize_dynamically(ops::NodeBuilder& b, Value* x) {
  Value* zero = b.number(x, 0);
  const auto all = [&](std::string_view type) {
    return b.emit(type, {x, b.graph.constant_int64(ops::all_axes(x->rank()))}, {attribute("keepdims", int64_t{0})});
  };
  Value* most = b.emit("Max", {all("ReduceMax"), zero});
  Value* least = b.emit("Min", {all("ReduceMin"), zero});
  Value* range = b.sub(most, least);
  Value* flat = b.emit("Equal", {range, zero});
  Value* scale = b.where(flat, b.number(x, 1), b.div(range, b.number(x, 255)));
  Value* place = b.emit("Round", {b.sub(zero, b.div(least, scale))});
  Value* zero_point = b.cast(b.emit("Clip", {place, zero, b.number(x, 255)}), DType::uint8);
  return {b.emit("QuantizeLinear", {x, scale, zero_point}), scale, zero_point};
}

std::vector<Lowering> quantization_lowerings() {
  return {
      {"DynamicQuantizeLinear", 1, dynamic_quantize},
      {.op_type = "MatMulInteger", .operands = 2, .lower = matmul_integer, .applies = is_unusual_product},
      {.op_type = "MatMulNBits",
       .operands = 3,
       .lower = matmul_nbits,
       .applies = is_unusual_nbits,
       .domain = kMicrosoft},
      {"QLinearMatMul", 8, qlinear_matmul},
      {"QLinearConv", 8, qlinear_conv},
  };
}

}  // namespace tessera::rewrite

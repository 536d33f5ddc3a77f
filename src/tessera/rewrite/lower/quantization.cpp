#include "tessera/base/error.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/lower/lower.h"

namespace tessera::rewrite {
namespace {

using ops::fail_node;
using Values = std::vector<Value*>;

// A list with `rank` dimensions, its elements along `axis`; a number stays as it is.
Value* along(ops::NodeBuilder& b, Value* list, size_t rank, size_t axis) {
  list = b.as_number(list);
  if (list->rank() != 1) return list;
  Shape shape(rank, Expr(1));
  shape.at(axis) = list->shape().at(0);
  return b.reshape(list, shape);
}

// x - zero point, as int32. A list of zero points is along dimension `axis`.
Value* centered(ops::NodeBuilder& b, Value* x, Value* zero_point, size_t axis) {
  Value* wide = b.cast(x, DType::int32);
  return zero_point ? b.sub(wide, along(b, b.cast(zero_point, DType::int32), wide->rank(), axis)) : wide;
}

// Whether the operands have the form that MatMulInteger takes: matrices, with numbers or lists as zero points.
bool is_plain(const Value* a, const Value* a_zero, const Value* b, const Value* b_zero) {
  const auto is_list = [](const Value* zero) { return !zero || zero->rank() <= 1; };
  return a->rank() >= 2 && b->rank() >= 2 && is_list(a_zero) && is_list(b_zero);
}

bool is_unusual_product(const Node& node) {
  return node.input(0) && node.input(1) && node.input(0)->has_shape() && node.input(1)->has_shape() &&
         !is_plain(node.input(0), node.input(2), node.input(1), node.input(3));
}

Values matmul_integer(Lowerer& l) {
  return {integer_product(l.b, l.node, l.in(0), l.in(2), l.in(1), l.in(3))};
}

Value* scale_along(Lowerer& l, size_t operand, size_t rank, size_t axis) {
  return along(l.b, l.b.cast(l.in(operand), DType::float32), rank, axis);
}

Value* quantized(Lowerer& l, Value* y, size_t scale, size_t zero_point) {
  return l.b.emit("QuantizeLinear",
                  {y, l.b.as_number(l.b.cast(l.in(scale), DType::float32)), l.b.as_number(l.in(zero_point))});
}

Values qlinear_matmul(Lowerer& l) {
  Value* sums = l.b.cast(integer_product(l.b, l.node, l.in(0), l.in(2), l.in(3), l.in(5)), DType::float32);
  const size_t rank = sums->rank();
  Value* scale = l.b.mul(scale_along(l, 1, rank, rank > 1 ? rank - 2 : 0), scale_along(l, 4, rank, rank - 1));
  return {quantized(l, l.b.mul(sums, scale), 6, 7)};
}

// A list along the channels of an image of that rank.
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

// Without reordered rows and a bias, and with scales and zero points as matrices; older quantizers write lists.
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

Value* integer_product(ops::NodeBuilder& b, const Node& node, Value* left, Value* left_zero, Value* right,
                       Value* right_zero) {
  if (is_plain(left, left_zero, right, right_zero))
    return b.emit("MatMulInteger", {left, right, left_zero, right_zero});
  if (left->rank() < 1 || right->rank() < 1) fail_node(node, "its operands must have dimensions");
  return b.emit("MatMul", {centered(b, left, left_zero, left->rank() > 1 ? left->rank() - 2 : 0),
                           centered(b, right, right_zero, right->rank() - 1)});
}

std::vector<Value*> quantize_dynamically(ops::NodeBuilder& b, Value* x) {
  return b.emit_all("", "DynamicQuantizeLinear", {x}, {}, 3);
}

std::vector<Lowering> quantization_lowerings() {
  return {
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

#include "tessera/ops/library/codes.h"

#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"

namespace tessera::ops {

void require_bytes(const Node& node, size_t index) {
  const DType dtype = operand(node, index).dtype();
  if (dtype != DType::uint8 && dtype != DType::int8)
    fail_node(node, "operand {} is {}; it multiplies uint8 and int8", index, name_of(dtype));
}

void require_zero_point(const Node& node, size_t index, size_t of, const Expr& along) {
  if (!has_operand(node, index)) return;
  const Value& zero = operand(node, index);
  if (zero.dtype() != operand(node, of).dtype())
    fail_node(node, "its zero point '{}' is {}, but its operand {} {}; they must have one type", zero.name,
              name_of(zero.dtype()), of, name_of(operand(node, of).dtype()));
  if (zero.rank() > 1 || (zero.rank() == 1 && !zero.shape()[0].is(1) && !same_extent(zero.shape()[0], along)))
    fail_node(node, "its zero point {} must be one number or a list of {}; else subtract it before, with Cast and Sub",
              to_string(zero.shape()), along.str());
}

Value* halves_of_bytes(NodeBuilder& b, Value* bytes) {
  Shape apart = bytes->shape(), flat = bytes->shape();
  apart.push_back(1);
  flat.back() = flat.back() * 2;
  Value* low = b.emit("BitwiseAnd", {bytes, b.number(bytes, 15)});
  Value* high = b.emit("BitShift", {bytes, b.number(bytes, 4)}, {{"direction", std::string("RIGHT"), ""}});
  return b.reshape(b.emit("Concat", {b.reshape(low, apart), b.reshape(high, apart)}, {{"axis", int64_t{-1}, ""}}),
                   flat);
}

std::vector<Value*> codes_by_range(NodeBuilder& b, Value* x, Value* greatest, Value* smallest) {
  Value* zero = b.number(x, 0);
  Value* least = b.emit("Min", {smallest, zero});
  Value* range = b.sub(b.emit("Max", {greatest, zero}), least);
  Value* flat = b.emit("Equal", {range, zero});
  Value* scale = b.where(flat, b.number(x, 1), b.div(range, b.number(x, 255)));
  Value* place = b.emit("Round", {b.sub(zero, b.div(least, scale))});
  Value* zero_point = b.cast(b.emit("Clip", {place, zero, b.number(x, 255)}), DType::uint8);
  return {b.emit("QuantizeLinear", {x, scale, zero_point}), scale, zero_point};
}

bool is_list_of_zero_points(const Node& node, size_t index) {
  return has_operand(node, index) && shape_of(node, index).size() == 1 && !shape_of(node, index)[0].is(1);
}

}  // namespace tessera::ops

#include "tessera/dialect/body.h"

#include "tessera/base/error.h"
#include "tessera/dialect/library.h"
#include "tessera/spmd/program.h"

namespace tessera::dialect {
namespace {

// ONNX's AttributeType of a function's attribute.
constexpr int kIntegerType = 2, kTextType = 3;

AttributeValue reference(std::string_view name, int type) {
  return AttributeReference{std::string(name), type};
}

std::string text_of(const Attribute& attribute) {
  if (const auto* number = std::get_if<int64_t>(&attribute.value)) return fmt::format("{}={}", attribute.name, *number);
  fail_running("internal", "attribute {} of an index is not an integer", attribute.name);
}

}  // namespace

Body::Body(Graph& graph, const Spec& spec, Library& library)
    : graph_(graph), spec_(spec), group_(digits_of(spec.axes, library.mesh())), library_(library) {}

const Mesh& Body::mesh() const {
  return library_.mesh();
}

Value* Body::operand(std::string_view name) {
  Value* value = graph_.find(name);
  check(value != nullptr, fmt::format("{} has the operand {}", spec_.op, name));
  return value;
}

Value* Body::op(std::string_view type, std::vector<Value*> operands, std::vector<Attribute> attributes) {
  Node* node = graph_.add_node(type, std::move(operands), {""});
  node->attributes = std::move(attributes);
  return node->outputs[0];
}

Value* Body::number_op(std::string_view type, std::vector<Value*> operands, std::vector<Attribute> attributes) {
  std::string key(type);
  for (const Value* operand : operands) key += " " + operand->name;
  for (const Attribute& attribute : attributes) key += " " + text_of(attribute);
  Value*& known = known_[key];
  if (!known) known = op(type, std::move(operands), std::move(attributes));
  return known;
}

Value* Body::numbers(const std::vector<int64_t>& values) {
  Value*& known = known_[fmt::format("{}", fmt::join(values, ","))];
  if (!known) known = graph_.constant_int64(values);
  return known;
}

Value* Body::scalar(Value* number) {
  return number_op("Squeeze", {number, numbers({0})});
}

Value* Body::me() {
  if (library_.handles()) return me_by_axes();
  Value* rank = number_op("Unsqueeze", {operand("rank"), numbers({0})});
  Value* member = nullptr;
  int64_t weight = group_.size;
  for (const GroupDigits::Digit& digit : group_.digits) {
    weight /= digit.size;
    Value* value = digit.stride == 1 ? rank : number_op("Div", {rank, number(digit.stride)});
    if (digit.size * digit.stride < group_.ranks) value = number_op("Mod", {value, number(digit.size)});
    if (weight > 1) value = number_op("Mul", {value, number(weight)});
    member = member ? number_op("Add", {member, value}) : value;
  }
  return member ? member : number(0);
}

Value* Body::me_by_axes() {
  Value* member = number(0);
  for (const std::string& axis : spec_.axes) {
    Value*& index = known_["index " + axis];
    if (!index) {
      Node* node = graph_.add_node("AxisIndex", {operand("rank")}, {""}, spmd::kCommDomain);
      node->set("axis", axis);
      index = op("Unsqueeze", {node->outputs[0], numbers({0})});
    }
    Value* major = number_op("Mul", {member, number(digits_of({axis}, mesh()).size)});
    member = number_op("Add", {major, index});
  }
  return member;
}

Value* Body::peer_by_handle(Value* member) {
  Value*& known = known_["peer " + member->name];
  if (known) return known;
  Node* node = graph_.add_node("Neighbor", {operand("rank"), member}, {""}, spmd::kCommDomain);
  node->set("axes", spec_.axes);
  return known = node->outputs[0];
}

Value* Body::base() {
  Value* rank = number_op("Unsqueeze", {operand("rank"), numbers({0})});
  for (const GroupDigits::Digit& digit : group_.digits) {
    Value* value = digit.stride == 1 ? rank : number_op("Div", {rank, number(digit.stride)});
    value = number_op("Mul", {number_op("Mod", {value, number(digit.size)}), number(digit.stride)});
    rank = number_op("Sub", {rank, value});
  }
  return rank;
}

Value* Body::member_at(int64_t step) {
  step = (step % members() + members()) % members();
  if (step == 0) return me();
  return number_op("Mod", {number_op("Add", {me(), number(step)}), number(members())});
}

Value* Body::peer(Value* member, Value* condition) {
  if (library_.handles()) {
    Value* one = scalar(member);
    return peer_by_handle(condition ? number_op("Where", {condition, one, scalar(number(-1))}) : one);
  }
  Value* rank = group_.size == group_.ranks ? nullptr : base();
  int64_t weight = group_.size;
  for (const GroupDigits::Digit& digit : group_.digits) {
    weight /= digit.size;
    Value* value = weight == 1 ? member : number_op("Div", {member, number(weight)});
    if (digit.size * weight < group_.size) value = number_op("Mod", {value, number(digit.size)});
    if (digit.stride > 1) value = number_op("Mul", {value, number(digit.stride)});
    rank = rank ? number_op("Add", {rank, value}) : value;
  }
  Value* all = scalar(rank ? rank : number(0));
  return condition ? number_op("Where", {condition, all, scalar(number(-1))}) : all;
}

Value* Body::is_me(int64_t member) {
  return number_op("Equal", {scalar(me()), scalar(number(member))});
}

Value* Body::less(Value* a, int64_t b) {
  return number_op("Less", {scalar(a), scalar(number(b))});
}

Value* Body::start_of(Value* bounds, Value* member) {
  return number_op("Gather", {bounds, member});
}

Value* Body::extent_of(Value* bounds, Value* member) {
  return number_op("Sub", {start_of(bounds, number_op("Add", {member, number(1)})), start_of(bounds, member)});
}

Value* Body::block_of(Value* data, Value* bounds, Value* member, int64_t dim) {
  return slice(data, start_of(bounds, member), start_of(bounds, number_op("Add", {member, number(1)})), dim);
}

Value* Body::slice(Value* data, Value* begin, Value* end, int64_t dim) {
  return op("Slice", {data, begin, end, number(dim)});
}

Value* Body::concat(std::vector<Value*> pieces, int64_t dim) {
  return pieces.size() == 1 ? pieces[0] : op("Concat", std::move(pieces), {{"axis", dim, ""}});
}

Value* Body::unrotate(Value* rotated, Value* bounds, int64_t dim) {
  if (members() == 1) return rotated;
  // The blocks of 0 … me follow those of me + 1 … n - 1.
  Value* total = start_of(bounds, number(members()));
  Value* first = number_op("Sub", {total, start_of(bounds, number_op("Add", {me(), number(1)}))});
  return concat({slice(rotated, first, total, dim), slice(rotated, number(0), first, dim)}, dim);
}

Value* Body::shape_of(Value* data) {
  return number_op("Shape", {data});
}

Value* Body::with_extent(Value* shape, int64_t dim, Value* extent) {
  constexpr int64_t kEnd = INT64_MAX;
  std::vector<Value*> pieces;
  if (dim > 0) pieces.push_back(number_op("Slice", {shape, number(0), number(dim)}));
  pieces.push_back(extent);
  pieces.push_back(number_op("Slice", {shape, number(dim + 1), number(kEnd)}));
  return number_op("Concat", std::move(pieces), {{"axis", int64_t{0}, ""}});
}

Value* Body::reshape(Value* data, Value* shape) {
  return op("Reshape", {data, shape}, {{"allowzero", int64_t{1}, ""}});
}

Value* Body::flat(Value* data) {
  return reshape(data, number_op("Unsqueeze", {number_op("Size", {data}), numbers({0})}));
}

Value* Body::balanced_bounds(Value* total, int64_t members) {
  std::vector<int64_t> indices;
  for (int64_t member = 0; member <= members; ++member) indices.push_back(member);
  Value* least = number_op("Div", {total, number(members)});
  Value* larger = number_op("Mod", {total, number(members)});
  return number_op("Add", {number_op("Mul", {numbers(indices), least}), number_op("Min", {numbers(indices), larger})});
}

Value* Body::zeros(Value* like, Value* shape) {
  return op("Expand", {op("CastLike", {number(0), like}), shape});
}

Value* Body::reduce(Value* a, Value* b) {
  switch (spec_.reduction) {
    case Reduction::sum:
    case Reduction::mean:
      return op(spec_.boolean ? "Or" : "Add", {a, b});
    case Reduction::max:
      return op(spec_.boolean ? "Or" : "Max", {a, b});
    case Reduction::min:
      return op(spec_.boolean ? "And" : "Min", {a, b});
  }
  return nullptr;
}

Value* Body::mean(Value* sum) {
  if (spec_.reduction != Reduction::mean) return sum;
  return op("Div", {sum, op("CastLike", {scalar(number(members())), sum})});
}

void Body::send(Value* data, Value* peer, const std::string& step) {
  Node* node = graph_.add_node("Send", {data, peer}, {}, spmd::kCommDomain);
  node->set("axes", spec_.axes);
  node->set("value", reference("value", kTextType));
  node->set("step", step);
}

Value* Body::recv(Value* peer, Value* shape, const std::string& step) {
  Node* node = graph_.add_node("Recv", {peer, shape}, {""}, spmd::kCommDomain);
  node->set("axes", spec_.axes);
  node->set("dtype", reference("dtype", kIntegerType));
  node->set("value", reference("value", kTextType));
  node->set("step", step);
  return node->outputs[0];
}

Value* Body::call(const Spec& spec, std::vector<Value*> operands, std::optional<DType> dtype) {
  operands.push_back(operand("rank"));
  Node* node = graph_.add_node(library_.name_of(spec), std::move(operands), {""}, spmd::kCommDomain);
  node->set("value", reference("value", kTextType));
  node->set("dtype", dtype ? AttributeValue(static_cast<int64_t>(*dtype)) : reference("dtype", kIntegerType));
  return node->outputs[0];
}

}  // namespace tessera::dialect

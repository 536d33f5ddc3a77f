#include <algorithm>
#include <array>
#include <limits>

#include "tessera/base/counted.h"
#include "tessera/ops/examples/examples.h"
#include "tessera/ops/fold.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/finite.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

enum class Accepts { any, numbers, floats, integers, booleans };

// Which operands may be partial together, the result then being partial too. That must be right for every value, and to
// the bit where all ranks but one hold -0, which adds nothing to any float. So floats are scaled by positive numbers
// alone: what may be 0, infinite or NaN makes NaN of -0, and what is below zero makes 0 of it, which is not nothing.
enum class Partials {
  none,
  first,          // linear in the first operand: sum {0}
  first_integer,  // the same, but of integers only
  each_scaled,    // of integers sum {0}, sum {1}; of floats the same where the other is a positive number
  first_scaled,   // sum {0} where the second is a positive float
  together,       // linear in all at once: sum {0, 1, …}
  integers_together,
  selected,      // of a selection by operand 0: {1, 2}, any reduction
  max_together,  // max {0, 1, …}
  min_together,
  monotone_integer,  // max {0}, min {0} of integers; of floats, Relu takes -0 for -0 and what is below for 0
};

constexpr size_t kMany = std::numeric_limits<size_t>::max();
constexpr int kFew = 1, kTranscendental = 10;  // operations per element, roughly

struct Row {
  std::string_view type;
  size_t least_operands;
  size_t most_operands;
  Accepts accepts;
  bool gives_bool = false;
  Partials partials = Partials::none;
  int cost = kFew;
  bool commutes = false;
  bool broadcasts = true;
  Moves moves = Moves::nothing;
};

constexpr Row unary(std::string_view type, Accepts accepts, int cost = kFew, Partials partials = Partials::none) {
  return {type, 1, 1, accepts, false, partials, cost};
}
constexpr Row binary(std::string_view type, Accepts accepts, Partials partials = Partials::none, int cost = kFew) {
  return {type, 2, 2, accepts, false, partials, cost};
}
constexpr Row variadic(std::string_view type, Accepts accepts, Partials partials) {
  return {type, 1, kMany, accepts, false, partials, kFew};
}
constexpr Row question(std::string_view type, size_t operands, Accepts accepts) {
  return {type, operands, operands, accepts, true};
}

constexpr Row commuting(Row row) {
  row.commutes = true;
  return row;
}
constexpr Row moving(Moves moves, Row row) {
  row.moves = moves;
  return row;
}

constexpr std::array kRows = {
    moving(Moves::all, unary("Identity", Accepts::any, 0, Partials::first)),
    unary("Abs", Accepts::numbers),
    unary("Neg", Accepts::numbers, kFew, Partials::first_integer),
    unary("Sign", Accepts::numbers),
    unary("Relu", Accepts::numbers, kFew, Partials::monotone_integer),
    unary("Shrink", Accepts::numbers),
    unary("Exp", Accepts::floats, kTranscendental),
    unary("Log", Accepts::floats, kTranscendental),
    unary("Sqrt", Accepts::floats),
    unary("Reciprocal", Accepts::floats),
    unary("Sin", Accepts::floats, kTranscendental),
    unary("Cos", Accepts::floats, kTranscendental),
    unary("Tan", Accepts::floats, kTranscendental),
    unary("Sinh", Accepts::floats, kTranscendental),
    unary("Cosh", Accepts::floats, kTranscendental),
    unary("Tanh", Accepts::floats, kTranscendental),
    unary("Asin", Accepts::floats, kTranscendental),
    unary("Acos", Accepts::floats, kTranscendental),
    unary("Atan", Accepts::floats, kTranscendental),
    unary("Asinh", Accepts::floats, kTranscendental),
    unary("Acosh", Accepts::floats, kTranscendental),
    unary("Atanh", Accepts::floats, kTranscendental),
    unary("Sigmoid", Accepts::floats, kTranscendental),
    unary("Erf", Accepts::numbers, kTranscendental),
    unary("LeakyRelu", Accepts::floats),
    unary("ThresholdedRelu", Accepts::floats),
    unary("Elu", Accepts::floats, kTranscendental),
    unary("Selu", Accepts::floats, kTranscendental),
    unary("Celu", Accepts::floats, kTranscendental),
    unary("HardSigmoid", Accepts::floats),
    unary("HardSwish", Accepts::floats),
    unary("Mish", Accepts::floats, kTranscendental),
    unary("Softplus", Accepts::floats, kTranscendental),
    unary("Softsign", Accepts::floats),
    unary("Gelu", Accepts::floats, kTranscendental),
    unary("Swish", Accepts::floats, kTranscendental),
    unary("Floor", Accepts::floats),
    unary("Ceil", Accepts::floats),
    unary("Round", Accepts::floats),
    unary("Not", Accepts::booleans),
    unary("BitwiseNot", Accepts::integers),
    question("IsNaN", 1, Accepts::floats),
    question("IsInf", 1, Accepts::floats),
    commuting(binary("Add", Accepts::numbers, Partials::together)),
    binary("Sub", Accepts::numbers, Partials::integers_together),
    commuting(binary("Mul", Accepts::numbers, Partials::each_scaled)),
    binary("Div", Accepts::numbers, Partials::first_scaled),
    binary("Mod", Accepts::numbers),
    binary("Pow", Accepts::numbers, Partials::none, kTranscendental),
    Row{.type = "PRelu", .least_operands = 2, .most_operands = 2, .accepts = Accepts::numbers, .broadcasts = false},
    commuting(binary("And", Accepts::booleans)),
    commuting(binary("Or", Accepts::booleans)),
    commuting(binary("Xor", Accepts::booleans)),
    commuting(binary("BitwiseAnd", Accepts::integers)),
    commuting(binary("BitwiseOr", Accepts::integers)),
    commuting(binary("BitwiseXor", Accepts::integers)),
    binary("BitShift", Accepts::integers),
    commuting(question("Equal", 2, Accepts::any)),
    question("Less", 2, Accepts::numbers),
    question("Greater", 2, Accepts::numbers),
    question("LessOrEqual", 2, Accepts::numbers),
    question("GreaterOrEqual", 2, Accepts::numbers),
    commuting(moving(Moves::some, variadic("Max", Accepts::numbers, Partials::max_together))),
    commuting(moving(Moves::some, variadic("Min", Accepts::numbers, Partials::min_together))),
    commuting(variadic("Sum", Accepts::floats, Partials::together)),
    commuting(variadic("Mean", Accepts::floats, Partials::together)),
    Row{.type = "Clip",
        .least_operands = 1,
        .most_operands = 3,
        .accepts = Accepts::numbers,
        .broadcasts = false,
        .moves = Moves::some},
    Row{.type = "Where",
        .least_operands = 3,
        .most_operands = 3,
        .accepts = Accepts::any,
        .partials = Partials::selected,
        .moves = Moves::some},
};

const Row& row_of(const Node& node) {
  auto row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.type == node.op_type; });
  check(row != kRows.end(), "an elementwise operator has its row");
  return *row;
}

bool accepts(Accepts what, DType dtype) {
  switch (what) {
    case Accepts::any:
      return true;
    case Accepts::numbers:
      return is_float(dtype) || is_integer(dtype);
    case Accepts::floats:
      return is_float(dtype);
    case Accepts::integers:
      return is_integer(dtype);
    case Accepts::booleans:
      return dtype == DType::boolean;
  }
  return false;
}

std::string_view words(Accepts what) {
  constexpr std::array kWords = {"any type", "numbers", "floats", "integers", "booleans"};
  return kWords[static_cast<size_t>(what)];
}

// The operands whose type the operator shares; Where's condition and Pow's exponent have their own.
std::vector<const Value*> typed_operands(const Node& node) {
  bool select = node.op_type == "Where", power = node.op_type == "Pow";
  std::vector<const Value*> typed;
  for (size_t i = select ? 1 : 0; i < (power ? 1 : node.inputs.size()); ++i)
    if (has_operand(node, i)) typed.push_back(&operand(node, i));
  return typed;
}

void check_types(const Node& node, const Row& row) {
  auto typed = typed_operands(node);
  for (const Value* value : typed) {
    if (!accepts(row.accepts, value->dtype()))
      fail_node(node, "operand '{}' is {}; {} works on {}; insert a Cast", value->name, name_of(value->dtype()),
                node.op_type, words(row.accepts));
    if (value->dtype() != typed[0]->dtype())
      fail_node(node, "operands '{}' and '{}' are {} and {}; {} needs one type; insert a Cast", typed[0]->name,
                value->name, name_of(typed[0]->dtype()), name_of(value->dtype()), node.op_type);
  }
  if (node.op_type == "Where" && operand(node, 0).dtype() != DType::boolean)
    fail_node(node, "the condition '{}' is {}; it must be bool; insert a Cast", node.input(0)->name,
              name_of(node.input(0)->dtype()));
}

void infer(Node& node) {
  const Row& row = row_of(node);
  if (node.inputs.size() < row.least_operands || node.inputs.size() > row.most_operands)
    fail_node(node, "it has {}; {} takes {}", counted(node.inputs.size(), "operand"), node.op_type,
              row.most_operands == kMany ? "one or more"
              : row.least_operands == row.most_operands
                  ? fmt::format("{}", row.least_operands)
                  : fmt::format("{} to {}", row.least_operands, row.most_operands));
  std::vector<const Shape*> shapes;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    bool optional = i > 0 && row.type == "Clip";
    if (optional && !has_operand(node, i)) continue;
    const Shape& shape = shape_of(node, i);
    if (optional && std::any_of(shape.begin(), shape.end(), [](const Expr& extent) { return !extent.is(1); }))
      fail_node(node, "the bound that is operand {} has the shape {}; it must be one element", i, to_string(shape));
    shapes.push_back(&shape);
  }
  check_types(node, row);
  Shape shape = broadcast(node, shapes);
  if (row.type == "PRelu" && shape.size() > shapes[0]->size())
    fail_node(node, "the slope's shape {} must broadcast to the input's, {}", to_string(*shapes[1]),
              to_string(*shapes[0]));
  DType dtype = row.gives_bool ? DType::boolean : typed_operands(node)[0]->dtype();
  auto content = folded_content(node, dtype, shape);
  set_result(node, 0, dtype, std::move(shape), std::move(content));
}

Rule rule(const Node& node) {
  Rule rule = broadcast_rule(node);
  DType dtype = typed_operands(node)[0]->dtype();
  if (dtype == DType::boolean) return rule;
  std::vector<int> all;
  for (size_t i = 0; i < node.inputs.size(); ++i) all.push_back(static_cast<int>(i));
  switch (row_of(node).partials) {
    case Partials::none:
      break;
    case Partials::first:
      rule.partial(Reduction::sum, {0});
      break;
    case Partials::first_integer:
      if (is_integer(dtype)) rule.partial(Reduction::sum, {0});
      break;
    case Partials::each_scaled:
      for (int i : {0, 1})
        if (is_integer(dtype) || is_positive_number(node.input(1 - i))) rule.partial(Reduction::sum, {i});
      break;
    case Partials::first_scaled:
      if (is_float(dtype) && is_positive_number(node.input(1))) rule.partial(Reduction::sum, {0});
      break;
    case Partials::together:
      rule.partial(Reduction::sum, all);
      break;
    case Partials::integers_together:
      if (is_integer(dtype)) rule.partial(Reduction::sum, all);
      break;
    case Partials::selected:
      for (Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) rule.partial(reduction, {1, 2});
      break;
    case Partials::max_together:
      rule.partial(Reduction::max, all);
      break;
    case Partials::min_together:
      rule.partial(Reduction::min, all);
      break;
    case Partials::monotone_integer:
      if (is_integer(dtype)) rule.partial(Reduction::max, {0}).partial(Reduction::min, {0});
      break;
  }
  if (node.is("Identity")) rule.partial(Reduction::max, {0}).partial(Reduction::min, {0});
  return rule;
}

Expr flops(const Node& node) {
  int64_t steps = std::max<int64_t>(1, static_cast<int64_t>(node.inputs.size()) - 1);
  return product(node.output()->shape()) * steps * row_of(node).cost;
}

DType cast_target(const Node& node) {
  if (node.is("CastLike")) return operand(node, 1).dtype();
  const int64_t* to = node.get<int64_t>("to");
  auto dtype = to ? static_cast<DType>(*to) : DType::undefined;
  if (name_of(dtype) == name_of(DType::undefined))
    fail_node(node, "its attribute 'to' is {}; it must be a TensorProto data type", to ? *to : 0);
  return dtype;
}

void infer_cast(Node& node) {
  const Value& from = operand(node, 0);
  DType to = cast_target(node);
  set_result(node, 0, to, from.shape(), cast_content(from, to));
}

// Casting keeps sums if it never rounds a partial sum otherwise than the whole one.
bool keeps_sums(DType from, DType to) {
  if (from == to) return from != DType::boolean;
  if (is_integer(from) && is_integer(to)) return bits_of(from) >= bits_of(to);
  bool wide = to == DType::float32 || to == DType::float64;
  return is_float(from) && wide && bits_of(from) < bits_of(to);
}

Rule cast_rule(const Node& node) {
  Rule rule;
  const Shape& shape = node.output()->shape();
  std::vector<DimFactors> dims(shape.size());
  const auto can_be_cut = [&](size_t d) {
    const auto dim = static_cast<int64_t>(d);
    return fills_bytes(operand(node, 0), dim) && fills_bytes(*node.output(), dim);
  };
  for (size_t d = 0; d < shape.size(); ++d)
    if (!shape[d].is(1) && can_be_cut(d)) dims[d] = {rule.add(factor_name(d), shape[d])};
  rule.operands = {dims};
  // Only the type of CastLike's second operand matters.
  if (node.is("CastLike")) rule.operands.emplace_back(operand(node, 1).rank());
  rule.results = {dims};
  DType from = operand(node, 0).dtype(), to = node.output()->dtype();
  if (keeps_sums(from, to)) rule.partial(Reduction::sum, {0});
  return rule;
}

// To what the local result is: partial sums of 16 bits are float32.
std::vector<Value*> localize_cast(Localizer& local) {
  if (local.node.is("Cast") && local.outputs[0].dtype == local.node.output()->dtype()) return local.same();
  std::vector<Attribute> attributes = local.node.attributes;
  std::erase_if(attributes, [](const Attribute& attribute) { return attribute.name == "to"; });
  attributes.push_back({"to", static_cast<int64_t>(local.outputs[0].dtype), ""});
  return {local.emit("Cast", {local.inputs[0]}, local.outputs[0], std::move(attributes))};
}

void infer_bit_cast(Node& node) {
  const Value& from = operand(node, 0);
  const DType to = cast_target(node);
  if (bits_of(from.dtype()) != bits_of(to))
    fail_node(node, "its operand is {}, whose elements differ in size from those of {}", name_of(from.dtype()),
              name_of(to));
  set_result(node, 0, to, from.shape());
}

Rule bit_cast_rule(const Node& node) {
  std::vector<bool> passes;
  for (size_t d = 0; d < shape_of(node, 0).size(); ++d)
    passes.push_back(fills_bytes(operand(node, 0), static_cast<int64_t>(d)));
  Rule rule = dimension_rule(node, passes);
  rule.results = {rule.operands[0]};
  return rule;
}

void infer_dropout(Node& node) {
  const Value& data = operand(node, 0);
  if (has_operand(node, 2)) {
    auto training = content_of(node.input(2));
    if (!training || training->size() != 1 || !training->front().is(0))
      fail_node(node, "training_mode ('{}') is not known to be false; export the model for inference",
                node.input(2)->name);  // rewriting has given a Dropout that may drop a key (random.h)
  }
  set_result(node, 0, data.dtype(), data.shape(), content_of(&data));
  set_result(node, 1, DType::boolean, data.shape());
}

Rule dropout_rule(const Node& node) {
  Rule rule = broadcast_rule(node);
  // The mask is not a function of the data, so it cannot be partial with it.
  if (!node.output(1)) rule.partial(Reduction::sum, {0});
  return rule;
}

std::vector<Example> (*examples_of(const Row& row))(std::string_view) {
  if (row.type == "Clip") return clip_examples;
  if (row.type == "Where") return where_examples;
  if (row.most_operands == kMany) return variadic_examples;
  return row.most_operands == 1 ? unary_examples : binary_examples;
}

}  // namespace

std::vector<OpDef> elementwise_ops() {
  std::vector<OpDef> ops;
  for (const Row& row : kRows)
    ops.push_back({.type = row.type,
                   .infer = infer,
                   .rule = rule,
                   .flops = row.cost ? flops : nullptr,
                   .gradient = elementwise_gradient(row.type),
                   .no_gradient = elementwise_gradient(row.type) ? "" : "its results are integers or booleans",
                   .pass_through = true,
                   .elementwise = row.broadcasts,
                   .commutative = row.commutes,
                   .moves = row.moves,
                   .examples = examples_of(row)});
  ops.push_back({.type = "Cast",
                 .infer = infer_cast,
                 .rule = cast_rule,
                 .localize = localize_cast,
                 .gradient = cast_gradient,
                 .pass_through = true,
                 .elementwise = true,
                 .moves = Moves::all,
                 .examples = cast_examples});
  ops.push_back({.type = "BitCast",
                 .infer = infer_bit_cast,
                 .rule = bit_cast_rule,
                 .no_gradient = "its results are bits",
                 .pass_through = true,
                 .examples = bit_cast_examples});
  ops.push_back({.type = "CastLike",
                 .infer = infer_cast,
                 .rule = cast_rule,
                 .localize = localize_cast,
                 .gradient = cast_gradient,
                 .pass_through = true,
                 .moves = Moves::all,
                 .elements_unread = {1},
                 .examples = cast_like_examples});
  ops.push_back({.type = "Dropout",
                 .infer = infer_dropout,
                 .rule = dropout_rule,
                 .gradient = dropout_gradient,
                 .pass_through = true,
                 .values = {2},
                 .examples = inference_dropout_examples});
  return ops;
}

}  // namespace tessera::ops

#include <algorithm>
#include <cmath>

#include "tessera/base/counted.h"
#include "tessera/ops/examples/examples.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/node_builder.h"
#include "tessera/ops/library/ratio.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

// --- Constant: importing turns it into a constant value; written programs may hold it

void infer_constant(Node& node) {
  if (const Tensor* value = node.get<Tensor>("value")) {
    std::optional<std::vector<Expr>> content;
    bool integral = is_integer(value->dtype) || value->dtype == DType::boolean;
    if (integral && bits_of(value->dtype) >= 8 && value->dims.size() <= 1 && value->count() <= kMaxContent) {
      auto elements = value->to_int64();
      content.emplace(elements.begin(), elements.end());
    }
    set_result(node, 0, value->dtype, Shape(value->dims.begin(), value->dims.end()), std::move(content));
  } else if (const int64_t* number = node.get<int64_t>("value_int")) {
    set_result(node, 0, DType::int64, {}, std::vector<Expr>{*number});
  } else if (const auto* numbers = node.get<std::vector<int64_t>>("value_ints")) {
    set_result(node, 0, DType::int64, {static_cast<int64_t>(numbers->size())},
               std::vector<Expr>(numbers->begin(), numbers->end()));
  } else if (node.get<float>("value_float")) {
    set_result(node, 0, DType::float32, {});
  } else if (const auto* floats = node.get<std::vector<float>>("value_floats")) {
    set_result(node, 0, DType::float32, {static_cast<int64_t>(floats->size())});
  } else {
    fail_node(node, "only dense numbers are supported (value, value_int, value_ints, value_float, value_floats)");
  }
}

Rule constant_rule(const Node& node) {
  Rule rule;
  rule.results.emplace_back(node.output()->rank());
  return rule;
}

// --- ConstantOfShape

void infer_constant_of_shape(Node& node) {
  const Value& list = operand(node, 0);
  if (list.rank() != 1) fail_node(node, "its shape operand has rank {}; it must be a list", list.rank());
  auto target = content_of(&list);
  Shape shape = target ? *target : declared_shape(node, 0, "shape");
  for (const Expr& extent : shape)
    if (extent.is_constant() && *extent.constant() < 0)
      fail_node(node, "the shape {} has a negative extent", to_string(shape));
  const Tensor* value = node.get<Tensor>("value");
  if (value && value->count() != 1)
    fail_node(node, "its attribute 'value' has {}; give one", counted(value->count(), "element"));
  DType dtype = value ? value->dtype : DType::float32;
  std::optional<std::vector<Expr>> content;
  if (dtype == DType::int64 || dtype == DType::int32 || dtype == DType::boolean)
    if (auto count = product(shape).constant(); count && *count <= kMaxContent)
      content.emplace(*count, Expr(value->to_int64()[0]));
  set_result(node, 0, dtype, std::move(shape), std::move(content));
}

Rule constant_of_shape_rule(const Node& node) {
  Rule rule;
  rule.operands.emplace_back(1);
  auto& dims = rule.results.emplace_back();
  const Shape& shape = node.output()->shape();
  for (size_t d = 0; d < shape.size(); ++d) {
    dims.emplace_back();
    if (!shape[d].is(1)) dims.back().push_back(rule.add(factor_name(d), shape[d]));
  }
  return rule;
}

std::vector<Value*> localize_constant_of_shape(Localizer& local) {
  return local.same_with(0, *local.outputs[0].shape);
}

// --- Range

struct Progression {
  Expr start, limit, delta;
  Expr count() const {
    bool down = delta.upper_bound().value_or(0) < 0;  // ceildiv wants a positive divisor
    return max(0, down ? ceildiv(start - limit, 0 - delta) : ceildiv(limit - start, delta));
  }
};

// Where all three are integers that shape computation knows, be it as floats.
std::optional<Progression> progression(const Node& node) {
  std::vector<Expr> numbers;
  for (size_t i = 0; i < 3; ++i) {
    auto ratios = ratios_of(&operand(node, i));
    if (!ratios || ratios->size() != 1 || !ratios->front().is_integer()) return std::nullopt;
    numbers.push_back(ratios->front().numerator);
  }
  if (numbers[2].is(0)) fail_node(node, "its delta is 0, so that it never ends");
  return Progression{numbers[0], numbers[1], numbers[2]};
}

// How many elements there are where the three are fractions: from 1/2 to width + 1/2 by 1.
std::optional<Expr> count_of_fractions(const Node& node) {
  std::vector<Ratio> numbers;
  for (size_t i = 0; i < 3; ++i) {
    auto ratios = ratios_of(&operand(node, i));
    if (!ratios || ratios->size() != 1 || !ratios->front().exact) return std::nullopt;
    numbers.push_back(ratios->front());
  }
  const Expr common = numbers[0].denominator * numbers[1].denominator * numbers[2].denominator;
  std::vector<Expr> scaled;
  for (const Ratio& number : numbers)
    scaled.push_back(number.numerator * *Expr::exact_divide(common, number.denominator));
  if (scaled[2].is(0)) fail_node(node, "its delta is 0, so that it never ends");
  return Progression{scaled[0], scaled[1], scaled[2]}.count();
}

std::optional<double> constant_float(const Value& value) {
  if (value.kind != ValueKind::constant || value.data.count() != 1) return std::nullopt;
  if (value.dtype() == DType::float32) return value.data.as<float>()[0];
  if (value.dtype() == DType::float64) return value.data.as<double>()[0];
  return std::nullopt;
}

void infer_range(Node& node) {
  DType dtype = operand(node, 0).dtype();
  for (size_t i = 0; i < 3; ++i)
    if (operand(node, i).dtype() != dtype || !product(shape_of(node, i)).is(1))
      fail_node(node, "operand '{}' is a {} of shape {}; start, limit and delta are scalars of one type",
                node.input(i)->name, name_of(node.input(i)->dtype()), to_string(node.input(i)->shape()));
  if (auto range = progression(node)) {
    Expr count = range->count();
    std::optional<std::vector<Expr>> content;
    if (auto number = count.constant(); number && *number <= kMaxContent) {
      content.emplace();
      for (int64_t i = 0; i < *number; ++i) content->push_back(range->start + range->delta * i);
    }
    set_result(node, 0, dtype, {count}, is_integer(dtype) ? std::move(content) : std::nullopt);
    return;
  }
  if (auto count = count_of_fractions(node)) return set_result(node, 0, dtype, {*count});
  auto start = constant_float(operand(node, 0)), limit = constant_float(operand(node, 1)),
       delta = constant_float(operand(node, 2));
  if (delta && *delta == 0) fail_node(node, "its delta is 0, so that it never ends");
  if (start && limit && delta) {
    double count = std::max(0.0, std::ceil((*limit - *start) / *delta));
    if (!(count < 1e15)) fail_node(node, "a range from {} to {} by {} never ends", *start, *limit, *delta);
    set_result(node, 0, dtype, {static_cast<int64_t>(count)});
    return;
  }
  size_t culprit = 0;
  while (culprit < 2 && (ratios_of(node.input(culprit)) || constant_float(*node.input(culprit)))) ++culprit;
  constexpr std::string_view kNames[] = {"start", "limit", "delta"};
  set_result(node, 0, dtype, declared_shape(node, culprit, kNames[culprit], 1));
}

Rule range_rule(const Node& node) {
  Rule rule;
  for (size_t i = 0; i < 3; ++i) rule.operands.emplace_back(shape_of(node, i).size());
  auto& dims = rule.results.emplace_back(1);
  const Expr& count = node.output()->shape()[0];
  if (progression(node) && !count.is(1)) dims[0] = {rule.add("a", count, FactorKind::index)};
  return rule;
}

// A scalar of the type that the operator works in.
Value* scalar(Localizer& local, std::string_view name, const Expr& number) {
  Value* value = local.graph.add_expression(local.node.output()->name + std::string(name), {number}, true);
  DType dtype = local.outputs[0].dtype;
  if (dtype == DType::int64) return value;
  return local.emit("Cast", {value}, {dtype, Shape{}}, {{"to", static_cast<int64_t>(dtype), ""}});
}

std::vector<Value*> localize_range(Localizer& local) {
  int along = local.factor("a");
  if (along < 0 || !local.split[along]) return local.same();
  Progression range = *progression(local.node);
  Expr first = range.start + local.offsets[along] * range.delta;
  local.inputs[0] = scalar(local, "_start", first);
  local.inputs[1] = scalar(local, "_limit", first + local.extents[along] * range.delta);
  return local.same();
}

// --- EyeLike

void infer_eye_like(Node& node) {
  const Value& like = operand(node, 0);
  if (like.rank() != 2) fail_node(node, "its input has the shape {}; it must be a matrix", to_string(like.shape()));
  const int64_t* named = node.get<int64_t>("dtype");
  set_result(node, 0, named ? static_cast<DType>(*named) : like.dtype(), like.shape());
}

Rule eye_like_rule(const Node& node) {
  Rule rule;
  rule.operands.push_back(add_dims(rule, shape_of(node, 0), "ab", FactorKind::index));
  rule.results.push_back(rule.operands[0]);
  return rule;
}

// The diagonal is an attribute, which cannot depend on the rank: a part compares global rows with global columns.
std::vector<Value*> localize_eye_like(Localizer& local) {
  const int row = local.rule.operands[0][0][0], column = local.rule.operands[0][1][0];
  if (!local.split[row] && !local.split[column]) return local.same();
  NodeBuilder build(local.graph, local.node.outputs[0]->name);
  const auto indices = [&](int factor, const Expr& from, const Shape& shape) {
    return build.reshape(build.add(build.range(local.extents[factor]), build.scalar(DType::int64, from)), shape);
  };
  Value* rows = indices(row, local.offsets[row] + local.node.get_int("k", 0), {local.extents[row], 1});
  Value* columns = indices(column, local.offsets[column], {local.extents[column]});
  Value* on_diagonal = build.emit("Equal", {rows, columns});
  return {build.cast(on_diagonal, local.outputs[0].dtype)};
}

}  // namespace

std::vector<OpDef> generator_ops() {
  return {
      {.type = "Constant",
       .infer = infer_constant,
       .rule = constant_rule,
       .no_gradient = "it reads no element that trains",
       .examples = constant_examples},
      {.type = "ConstantOfShape",
       .infer = infer_constant_of_shape,
       .rule = constant_of_shape_rule,
       .localize = localize_constant_of_shape,
       .no_gradient = "it reads no element that trains",
       .values = {0},
       .examples = constant_of_shape_examples},
      {.type = "Range",
       .infer = infer_range,
       .rule = range_rule,
       .localize = localize_range,
       .no_gradient = "it reads no element that trains",
       .values = {0, 1, 2},
       .examples = range_examples},
      {.type = "EyeLike",
       .infer = infer_eye_like,
       .rule = eye_like_rule,
       .localize = localize_eye_like,
       .no_gradient = "it reads no element that trains",
       .elements_unread = {0},
       .examples = eye_like_examples},
  };
}

}  // namespace tessera::ops

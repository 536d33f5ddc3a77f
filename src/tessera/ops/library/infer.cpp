#include "tessera/ops/library/infer.h"

#include <algorithm>
#include <set>

#include "tessera/ops/library/one_program.h"

namespace tessera::ops {
namespace {

// How far an expression is from a plain dimension: atoms other than symbols weigh most, then terms.
int complexity(const Expr& expr) {
  if (expr.is_constant()) return 0;
  int weight = 0;
  for (const Expr::Term& term : expr.terms()) {
    weight += 1;
    for (const auto& atom : term.factors) weight += atom->kind == Expr::AtomKind::symbol ? 1 : 100;
  }
  return weight;
}

}  // namespace

bool has_operand(const Node& node, size_t index) {
  return node.input(index) != nullptr;
}

const Value& operand(const Node& node, size_t index) {
  const Value* value = node.input(index);
  if (!value) fail_node(node, "operand {} is missing; {} needs it", index, node.op_type);
  if (value->dtype() == DType::undefined)
    fail_node(node, "the element type of operand {} ('{}') is not known; declare it in the model", index, value->name);
  if (!value->has_shape())
    fail_node(node, "the shape of operand {} ('{}') is not known; declare it in the model", index, value->name);
  return *value;
}

const Shape& shape_of(const Node& node, size_t index) {
  return operand(node, index).shape();
}

DType sum_dtype(const Node& node, DType operands) {
  const bool wide = bits_of(operands) == 16 && node.get_string("accumulate", "") == "float32";
  return wide ? DType::float32 : operands;
}

void set_result(Node& node, size_t index, DType dtype, Shape shape, std::optional<std::vector<Expr>> content) {
  Value* result = node.output(index);
  if (!result) return;
  for (size_t d = 0; d < shape.size(); ++d)
    if (auto extent = shape[d].constant(); extent && *extent < 0)
      fail_node(node, "dimension {} of its result would be {}; the sizes that it is given must be 0 or more", d,
                *extent);
  if (content && (shape.size() > 1 || !product(shape).is(static_cast<int64_t>(content->size())) ||
                  static_cast<int64_t>(content->size()) > kMaxContent))
    content.reset();
  result->type = {dtype, std::move(shape)};
  result->content = std::move(content);
}

std::optional<std::vector<Expr>> content_of(const Value* value) {
  if (!value) return std::nullopt;
  if (value->content) return value->content;
  bool integral = is_integer(value->dtype()) || value->dtype() == DType::boolean;
  if (value->kind != ValueKind::constant || !integral || value->data.dims.size() > 1 ||
      value->data.count() > kMaxContent || bits_of(value->dtype()) < 8)
    return std::nullopt;
  auto elements = value->data.to_int64();
  return std::vector<Expr>(elements.begin(), elements.end());
}

std::vector<Expr> content_operand(const Node& node, size_t index, std::string_view what) {
  auto content = content_of(&operand(node, index));
  if (!content)
    throw NotInOneProgram(
        "shape", node,
        fmt::format("its {} ('{}') depends on data, so that the shape of the result is not known before the run; make "
                    "it a constant, or compute it from shapes",
                    what, node.input(index)->name),
        {.value = node.input(index)->name});
  return *content;
}

std::vector<int64_t> constant_operand(const Node& node, size_t index, std::string_view what) {
  std::vector<int64_t> numbers;
  for (const Expr& element : content_operand(node, index, what)) {
    auto number = element.constant();
    if (!number)
      fail_node(node, "its {} ('{}') holds {}; only constants work here", what, node.input(index)->name, element.str());
    numbers.push_back(*number);
  }
  return numbers;
}

Shape declared_shape(const Node& node, size_t operand, std::string_view what, std::optional<size_t> rank) {
  const Value* result = node.output();
  if (result && result->has_shape() && (!rank || result->rank() == *rank)) return result->shape();
  const Value* culprit = node.input(operand);
  const std::string message = fmt::format(
      "its {} ('{}') depends on data, so that the shape of the result is not known before the run; make it a constant, "
      "compute it from shapes, or declare the shape of the result in the model",
      what, culprit ? culprit->name : "");
  if (culprit) throw NotInOneProgram("shape", node, message, {.value = culprit->name});
  fail_node(node, "{}", message);
}

size_t normalize_axis(const Node& node, int64_t axis, size_t rank, std::string_view what) {
  auto extent = static_cast<int64_t>(rank);
  if (axis < -extent || axis >= extent)
    fail_node(node, "{} {} is out of range for rank {}; use {} to {}", what, axis, rank, -extent, extent - 1);
  return static_cast<size_t>(axis < 0 ? axis + extent : axis);
}

std::vector<size_t> normalize_axes(const Node& node, const std::vector<int64_t>& axes, size_t rank,
                                   std::string_view what) {
  std::vector<size_t> normal;
  for (int64_t axis : axes) {
    size_t index = normalize_axis(node, axis, rank, what);
    if (std::find(normal.begin(), normal.end(), index) != normal.end())
      fail_node(node, "{} name dimension {} twice; name it once", what, index);
    normal.push_back(index);
  }
  return normal;
}

std::optional<std::vector<size_t>> axes_operand(const Node& node, size_t index, size_t rank) {
  if (!has_operand(node, index)) return std::nullopt;
  return normalize_axes(node, constant_operand(node, index, "axes"), rank);
}

std::optional<int64_t> least(const Expr& expr) {
  if (!expr.mentions_sizes()) return expr.lower_bound();
  const auto positive = [](std::string_view name) -> std::optional<Expr> {
    if (name.starts_with('@')) return std::nullopt;  // the index of the first rank is 0
    return Expr::symbol(name) + 1;
  };
  return expr.substitute(positive).lower_bound();
}

bool depends_on_rank(const Expr& expr) {
  std::set<std::string> symbols;
  expr.collect_symbols(symbols);
  return std::any_of(symbols.begin(), symbols.end(), [](const std::string& name) { return name.starts_with('@'); });
}

Expr extent_of_part(const Expr& formula) {
  return depends_on_rank(formula) && least(formula).value_or(-1) < 0 ? max(0, formula) : formula;
}

std::optional<Expr> same_extent(const Expr& a, const Expr& b) {
  if (a == b) return a;
  if (a.is_constant() && b.is_constant()) return std::nullopt;
  return complexity(b) < complexity(a) ? b : a;
}

std::optional<Expr> broadcast_extent(const Expr& a, const Expr& b) {
  if (a.is(1)) return b;
  if (b.is(1)) return a;
  return same_extent(a, b);
}

Shape broadcast(const Node& node, const std::vector<const Shape*>& shapes) {
  size_t rank = 0;
  for (const Shape* shape : shapes) rank = std::max(rank, shape->size());
  Shape result(rank, Expr(1));
  for (const Shape* shape : shapes)
    for (size_t i = 0; i < shape->size(); ++i) {
      Expr& extent = result[rank - shape->size() + i];
      auto merged = broadcast_extent(extent, (*shape)[i]);
      if (!merged) {
        std::string all;
        for (const Shape* given : shapes) all += (all.empty() ? "" : " and ") + to_string(*given);
        fail_node(node,
                  "shapes {} do not broadcast: {} against {} at dimension {} of the result; extents must be equal or 1",
                  all, extent.str(), (*shape)[i].str(), rank - shape->size() + i);
      }
      extent = *merged;
    }
  return result;
}

std::string factor_name(size_t dim) {
  std::string name(1, static_cast<char>('a' + dim % 26));
  return dim < 26 ? name : name + std::to_string(dim / 26);
}

Rule broadcast_rule(const Node& node) {
  Rule rule;
  const Shape& shape = node.output()->shape();
  std::vector<DimFactors> dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    dims.emplace_back();
    if (!shape[d].is(1)) dims.back().push_back(rule.add(factor_name(d), shape[d]));
  }
  for (const Value* value : node.inputs) {
    auto& into = rule.operands.emplace_back();
    if (!value) continue;
    if (value->rank() > shape.size()) {  // an Expand's list of no extents
      into.resize(value->rank());
      continue;
    }
    size_t missing = shape.size() - value->rank();
    for (size_t d = 0; d < value->rank(); ++d)
      into.push_back(value->shape()[d].is(1) ? DimFactors{} : dims[missing + d]);
  }
  rule.results.assign(node.outputs.size(), dims);
  return rule;
}

Rule dimension_rule(const Node& node, const std::vector<bool>& stays) {
  Rule rule;
  const Shape& shape = shape_of(node, 0);
  std::vector<DimFactors> dims(shape.size());
  for (size_t d = 0; d < shape.size(); ++d)
    if (stays[d] && !shape[d].is(1)) dims[d] = {rule.add(factor_name(d), shape[d])};
  rule.operands.push_back(std::move(dims));
  for (size_t i = 1; i < node.inputs.size(); ++i)
    rule.operands.emplace_back(has_operand(node, i) ? node.input(i)->rank() : 0);
  return rule;
}

Rule moving(Rule rule, const std::vector<int>& operands) {
  for (Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) rule.partial(reduction, operands);
  return rule;
}

}  // namespace tessera::ops

#include <algorithm>

#include "tessera/base/counted.h"
#include "tessera/ops/examples/examples.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/require.h"
#include "tessera/ops/library/reshape_rule.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

// The dimensions that Squeeze takes away.
std::vector<size_t> squeezed_axes(const Node& node) {
  const Shape& from = shape_of(node, 0);
  if (auto axes = axes_operand(node, 1, from.size())) return *axes;
  std::vector<size_t> ones;
  for (size_t d = 0; d < from.size(); ++d)
    if (from[d].is(1)) ones.push_back(d);
  return ones;
}

Rule same_elements_rule(const Node& node) {
  Shape from = shape_of(node, 0);
  // A symbolic dimension that is squeezed has extent 1 when it is bound.
  if (node.is("Squeeze"))
    for (size_t axis : squeezed_axes(node)) from[axis] = 1;
  Rule rule = reshape_rule(from, node.output()->shape());
  for (size_t i = 1; i < node.inputs.size(); ++i)
    rule.operands.emplace_back(has_operand(node, i) ? node.input(i)->rank() : 0);
  return moving(std::move(rule), {0});
}

// --- Reshape

// Both have equally many elements, whatever sizes symbols have: so do the dimensions in which they differ, beside
// others that are not empty.
void note_equal_counts(Shape from, Shape to) {
  const auto both = [](const Expr& a, const Expr& b) { return a == b && a.lower_bound().value_or(0) > 0; };
  while (!from.empty() && !to.empty() && both(from.back(), to.back())) {
    from.pop_back();
    to.pop_back();
  }
  while (!from.empty() && !to.empty() && both(from.front(), to.front())) {
    from.erase(from.begin());
    to.erase(to.begin());
  }
  if (const Expr a = product(from), b = product(to); a != b) EqualityNotes::note(a, b, false);
}

Shape reshaped(const Node& node, const Shape& from, const std::vector<Expr>& target) {
  bool allow_zero = node.get_int("allowzero", 0) != 0;
  Shape shape;
  std::optional<size_t> open;
  for (size_t i = 0; i < target.size(); ++i) {
    const Expr& extent = target[i];
    if (extent.is(-1)) {
      if (open) fail_node(node, "the shape {} has -1 twice; give all extents but one", to_string(target));
      open = i;
      shape.push_back(1);
    } else if (extent.is(0) && !allow_zero) {
      if (i >= from.size())
        fail_node(node, "the shape {} copies dimension {} of an input of shape {}, which has no such dimension",
                  to_string(target), i, to_string(from));
      shape.push_back(from[i]);
    } else if (extent.is_constant() && *extent.constant() < 0) {
      fail_node(node, "the shape {} has the extent {}; extents are -1, 0 or positive", to_string(target), extent.str());
    } else {
      shape.push_back(extent);
    }
  }
  Expr elements = product(from), known = product(shape);
  if (open) {
    if (known.is(0))
      fail_node(node, "the shape {} has both 0 and -1, so that the open extent is not determined; give it",
                to_string(target));
    auto quotient = Expr::exact_divide(elements, known);
    if (!quotient && elements.is_constant() && known.is_constant())
      fail_node(node, "{} elements of shape {} cannot be given the shape {}", elements.str(), to_string(from),
                to_string(target));
    shape[*open] = quotient ? *quotient : floordiv(elements, known);
  } else if (elements.is_constant() && known.is_constant() && elements != known) {
    fail_node(node, "{} elements of shape {} cannot be given the shape {}, which has {}", elements.str(),
              to_string(from), to_string(target), known.str());
  } else {
    note_equal_counts(from, shape);
  }
  return shape;
}

// A shape that only the run computes is as the model declares it, if the elements can be given such a one.
Shape declared_to_reshape(const Node& node, const Shape& from) {
  Shape shape = declared_shape(node, 1, "shape");
  const Expr elements = product(from), declared = product(shape);
  const auto count = elements.constant(), least_count = least(declared);
  if (count && ((declared.is_constant() && declared != elements) || (least_count && *least_count > *count)))
    fail_node(node, "{} of shape {} cannot be given the shape {}, which the model declares", counted(*count, "element"),
              to_string(from), to_string(shape));
  return shape;
}

void infer_reshape(Node& node) {
  const Value& data = operand(node, 0);
  const Value& shape = operand(node, 1);
  if (shape.rank() != 1) fail_node(node, "its shape operand has rank {}; it must be a list", shape.rank());
  auto target = content_of(&shape);
  Shape result = target ? reshaped(node, data.shape(), *target) : declared_to_reshape(node, data.shape());
  set_result(node, 0, data.dtype(), std::move(result), content_of(&data));
}

std::vector<Value*> localize_reshape(Localizer& local) {
  auto results = local.same_with(1, *local.outputs[0].shape);
  // A rank's extent may be zero, which then means zero.
  results[0]->producer->set("allowzero", int64_t{1});
  return results;
}

void infer_flatten(Node& node) {
  const Value& data = operand(node, 0);
  const Shape& from = data.shape();
  int64_t axis = node.get_int("axis", 1);
  size_t cut = axis == static_cast<int64_t>(from.size()) ? from.size() : normalize_axis(node, axis, from.size());
  Shape outer(from.begin(), from.begin() + cut), inner(from.begin() + cut, from.end());
  set_result(node, 0, data.dtype(), {product(outer), product(inner)});
}

// --- Squeeze and Unsqueeze

void infer_squeeze(Node& node) {
  const Value& data = operand(node, 0);
  auto axes = squeezed_axes(node);
  Shape shape;
  for (size_t d = 0; d < data.rank(); ++d) {
    const Expr& extent = data.shape()[d];
    if (std::find(axes.begin(), axes.end(), d) == axes.end())
      shape.push_back(extent);
    else if (extent.is_constant() && !extent.is(1))
      fail_node(node, "dimension {} of shape {} has extent {}; only extents of 1 can be squeezed", d,
                to_string(data.shape()), extent.str());
  }
  set_result(node, 0, data.dtype(), std::move(shape), content_of(&data));
}

std::vector<Value*> localize_squeeze(Localizer& local) {
  // Axes left out mean the global extents of 1; a split dimension may have a local extent of 1, too.
  if (has_operand(local.node, 1)) return local.same();
  std::vector<int64_t> axes;
  for (size_t axis : squeezed_axes(local.node)) axes.push_back(static_cast<int64_t>(axis));
  local.inputs.resize(2);
  local.inputs[1] = local.graph.constant_int64(axes);
  return local.same();
}

void infer_unsqueeze(Node& node) {
  const Value& data = operand(node, 0);
  auto given = constant_operand(node, 1, "axes");
  auto axes = normalize_axes(node, given, data.rank() + given.size());
  Shape shape;
  size_t next = 0;
  for (size_t d = 0; d < data.rank() + axes.size(); ++d) {
    bool added = std::find(axes.begin(), axes.end(), d) != axes.end();
    shape.push_back(added ? Expr(1) : data.shape()[next++]);
  }
  set_result(node, 0, data.dtype(), std::move(shape), content_of(&data));
}

// --- Expand

void infer_expand(Node& node) {
  const Value& data = operand(node, 0);
  auto target = content_of(&operand(node, 1));
  if (!target) {
    Shape declared = declared_shape(node, 1, "shape");
    const Shape widened = broadcast(node, {&data.shape(), &declared});
    bool fits = widened.size() == declared.size();
    for (size_t d = 0; fits && d < declared.size(); ++d) fits = same_extent(widened[d], declared[d]).has_value();
    if (!fits)
      fail_node(node, "the shape {} does not expand to {}, which the model declares", to_string(data.shape()),
                to_string(declared));
    set_result(node, 0, data.dtype(), std::move(declared));
    return;
  }
  for (const Expr& extent : *target)
    if (extent.is_constant() && *extent.constant() < 0)
      fail_node(node, "the shape {} has the extent {}; extents are 1 (to keep the input's) or more", to_string(*target),
                extent.str());
  Shape shape = broadcast(node, {&data.shape(), &*target});
  auto content = content_of(&data);
  if (content && content->size() == 1 && shape.size() == 1)
    if (auto count = shape[0].constant(); count && *count <= kMaxContent) content->resize(*count, content->front());
  set_result(node, 0, data.dtype(), std::move(shape), std::move(content));
}

Rule expand_rule(const Node& node) {
  Rule rule = broadcast_rule(node);
  rule.operands[1].assign(shape_of(node, 1).size(), {});
  return moving(std::move(rule), {0});
}

std::vector<Value*> localize_expand(Localizer& local) {
  return local.same_with(1, *local.outputs[0].shape);
}

// --- Shape and Size: of the global tensor, hence expressions

void infer_shape(Node& node) {
  const Shape& of = shape_of(node, 0);
  auto rank = static_cast<int64_t>(of.size());
  auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  int64_t start = clamp(node.get_int("start", 0)), end = clamp(node.get_int("end", rank));
  std::vector<Expr> extents;
  for (int64_t d = start; d < end; ++d) extents.push_back(of[d]);
  set_result(node, 0, DType::int64, {static_cast<int64_t>(extents.size())}, extents);
}

void infer_size(Node& node) {
  set_result(node, 0, DType::int64, {}, std::vector<Expr>{product(shape_of(node, 0))});
}

Rule no_factors_rule(const Node& node) {
  Rule rule;
  rule.operands.emplace_back(shape_of(node, 0).size());
  rule.results.emplace_back(node.output()->rank());
  return rule;
}

std::vector<Value*> localize_to_expression(Localizer& local) {
  const Value& global = *local.node.output();
  check(global.content.has_value(), "the result of Shape or Size has its content");
  return {local.graph.add_expression(global.name, *global.content, global.rank() == 0)};
}

OpDef view(std::string_view type, void (*infer)(Node&), std::vector<Example> (*examples)(std::string_view),
           LocalizeFn localize = nullptr) {
  return {.type = type,
          .infer = infer,
          .rule = same_elements_rule,
          .localize = localize,
          .gradient = reshape_gradient,
          .pass_through = true,
          .values = {1},
          .moves = Moves::in_order,
          .layout_step = type == "Reshape",
          .examples = examples};
}

}  // namespace

std::vector<OpDef> shape_ops() {
  return {
      view("Reshape", infer_reshape, reshape_examples, localize_reshape),
      view("Flatten", infer_flatten, flatten_examples),
      view("Squeeze", infer_squeeze, squeeze_examples, localize_squeeze),
      view("Unsqueeze", infer_unsqueeze, unsqueeze_examples),
      {.type = "Expand",
       .infer = infer_expand,
       .rule = expand_rule,
       .localize = localize_expand,
       .gradient = expand_gradient,
       .pass_through = true,
       .values = {1},
       .moves = Moves::part,
       .examples = expand_examples},
      {.type = "Shape",
       .infer = infer_shape,
       .rule = no_factors_rule,
       .localize = localize_to_expression,
       .no_gradient = "its results are integers",
       .elements_unread = {0},
       .examples = shape_examples},
      {.type = "Size",
       .infer = infer_size,
       .rule = no_factors_rule,
       .localize = localize_to_expression,
       .no_gradient = "its results are integers",
       .elements_unread = {0},
       .examples = size_examples},
  };
}

}  // namespace tessera::ops

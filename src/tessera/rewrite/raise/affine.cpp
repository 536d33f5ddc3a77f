#include "tessera/rewrite/raise/affine.h"

#include <algorithm>

#include "tessera/ops/fold.h"
#include "tessera/rewrite/edit.h"

namespace tessera::rewrite {
namespace {

/// The types of index arithmetic; narrower and unsigned types would wrap around.
bool is_integral(DType dtype) {
  return dtype == DType::int64 || dtype == DType::int32 || dtype == DType::boolean;
}

/// No index is larger, and sums of such numbers do not overflow.
bool is_small(const Expr& expr) {
  constexpr int64_t kMost = int64_t{1} << 40;
  auto number = expr.constant();
  return !number || (*number >= -kMost && *number <= kMost);
}

/// Strides over a shape of higher or equal rank, aligned at the right; broadcast dimensions have stride 0.
Affine over(const Affine& affine, size_t rank) {
  Affine result{affine.offset, std::vector<Expr>(rank - affine.strides.size(), Expr(0))};
  result.strides.insert(result.strides.end(), affine.strides.begin(), affine.strides.end());
  return result;
}

Affine combine(const Affine& a, const Affine& b, int64_t sign) {
  Affine result = a;
  result.offset = a.offset + Expr(sign) * b.offset;
  for (size_t d = 0; d < a.strides.size(); ++d) result.strides[d] = a.strides[d] + Expr(sign) * b.strides[d];
  return result;
}

Affine scaled(const Affine& a, const Expr& by) {
  Affine result = a;
  result.offset = a.offset * by;
  for (Expr& stride : result.strides) stride = stride * by;
  return result;
}

Affine constant(int64_t value, size_t rank) {
  return {Expr(value), std::vector<Expr>(rank, Expr(0))};
}

/// Elements of a constant, checked one by one against the strides that its first elements suggest.
std::optional<Affine> affine_of(const Tensor& data) {
  constexpr int64_t kLargest = 1 << 22;
  int64_t count = data.count();
  if (count == 0 || count > kLargest) return std::nullopt;
  std::vector<int64_t> elements = data.to_int64();
  Affine result{Expr(elements[0]), std::vector<Expr>(data.dims.size(), Expr(0))};
  std::vector<int64_t> strides(data.dims.size(), 0);
  int64_t step = 1;
  for (size_t d = data.dims.size(); d-- > 0;) {
    if (data.dims[d] > 1) strides[d] = elements[step] - elements[0];
    result.strides[d] = strides[d];
    step *= data.dims[d];
  }
  std::vector<int64_t> at(data.dims.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t expected = elements[0];
    for (size_t d = 0; d < at.size(); ++d) expected += strides[d] * at[d];
    if (elements[i] != expected) return std::nullopt;
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < data.dims[d]) break;
      at[d] = 0;
    }
  }
  return result;
}

std::vector<size_t> real_dimensions(const Shape& shape) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < shape.size(); ++d)
    if (!shape[d].is(1)) dims.push_back(d);
  return dims;
}

/// A reshape that only adds or removes dimensions of extent 1.
std::optional<Affine> reshape(const Affine& from, const Shape& old_shape, const Shape& new_shape) {
  Affine result{from.offset, std::vector<Expr>(new_shape.size(), Expr(0))};
  if (from.is_uniform()) return result;
  auto before = real_dimensions(old_shape), after = real_dimensions(new_shape);
  if (before.size() != after.size()) return std::nullopt;
  for (size_t i = 0; i < before.size(); ++i) {
    if (!(old_shape[before[i]] == new_shape[after[i]])) return std::nullopt;
    result.strides[after[i]] = from.strides[before[i]];
  }
  return result;
}

std::optional<int64_t> bound(const Affine& affine, const Shape& shape, bool lower) {
  Expr extreme = affine.offset;
  for (size_t d = 0; d < shape.size(); ++d) {
    const Expr& stride = affine.strides[d];
    auto least = stride.lower_bound(), most = stride.upper_bound();
    bool grows = least && *least >= 0, falls = most && *most <= 0;
    if (!grows && !falls) return std::nullopt;
    // An empty tensor satisfies any bound, so the last coordinate is shape[d] - 1.
    if (lower ? !grows : !falls) extreme = extreme + stride * (shape[d] - 1);
  }
  return lower ? extreme.lower_bound() : extreme.upper_bound();
}

/// Whether the comparison of `difference` with 0 holds everywhere (1), nowhere (0), or depends (nullopt).
std::optional<int64_t> decide(std::string_view type, const Affine& difference, const Shape& shape) {
  auto least = lower_bound(difference, shape), most = upper_bound(difference, shape);
  auto at_least = [&](int64_t value) { return least && *least >= value; };
  auto at_most = [&](int64_t value) { return most && *most <= value; };
  if (type == "Equal") {
    if (at_least(0) && at_most(0)) return 1;
    if (at_least(1) || at_most(-1)) return 0;
  } else if (type == "LessOrEqual" || type == "Greater") {
    if (at_most(0)) return type == "LessOrEqual";
    if (at_least(1)) return type == "Greater";
  } else if (type == "Less" || type == "GreaterOrEqual") {
    if (at_most(-1)) return type == "Less";
    if (at_least(0)) return type == "GreaterOrEqual";
  }
  return std::nullopt;
}

bool is_comparison(std::string_view type) {
  return type == "Equal" || type == "Less" || type == "LessOrEqual" || type == "Greater" || type == "GreaterOrEqual";
}

}  // namespace

bool Affine::is_uniform() const {
  return std::all_of(strides.begin(), strides.end(), [](const Expr& stride) { return stride.is(0); });
}

std::optional<int64_t> Affine::uniform() const {
  return is_uniform() ? offset.constant() : std::nullopt;
}

std::optional<size_t> Affine::coordinate() const {
  std::optional<size_t> found;
  for (size_t d = 0; d < strides.size(); ++d) {
    if (strides[d].is(0)) continue;
    if (found || !strides[d].is(1)) return std::nullopt;
    found = d;
  }
  return offset.is(0) ? found : std::nullopt;
}

std::optional<int64_t> lower_bound(const Affine& affine, const Shape& shape) {
  return bound(affine, shape, true);
}
std::optional<int64_t> upper_bound(const Affine& affine, const Shape& shape) {
  return bound(affine, shape, false);
}

AffineAnalysis::AffineAnalysis(const Graph& graph) {
  auto keep = [&](const Value& value, std::optional<Affine> affine) {
    if (!affine || !is_small(affine->offset) || !std::all_of(affine->strides.begin(), affine->strides.end(), is_small))
      return;
    for (size_t d = 0; d < affine->strides.size(); ++d)
      if (value.shape()[d].is(1)) affine->strides[d] = 0;
    known_.emplace(&value, std::move(*affine));
  };
  for (const auto& value : graph.values())
    if (!value->producer && value->has_shape() && is_integral(value->dtype()))
      keep(*value, ops::unless_overflowing([&] { return leaf(*value); }));
  for (const auto& node : graph.nodes())
    for (const Value* value : node->outputs) {
      if (!value || !value->has_shape() || !is_integral(value->dtype())) continue;
      auto affine = ops::unless_overflowing([&] { return leaf(*value); });
      const bool computed = !affine && node->outputs.size() == 1 && node->domain.empty();
      keep(*value, computed ? ops::unless_overflowing([&] { return result(*node); }) : affine);
    }
}

const Affine* AffineAnalysis::of(const Value* value) const {
  auto found = known_.find(value);
  return found == known_.end() ? nullptr : &found->second;
}

/// Known elements in arithmetic progression.
std::optional<Affine> AffineAnalysis::leaf(const Value& value) const {
  if (value.kind == ValueKind::constant) return affine_of(value.data);
  if (!value.content || value.content->empty()) return std::nullopt;
  const std::vector<Expr>& elements = *value.content;
  if (value.rank() == 0) return Affine{elements[0], {}};
  Expr step = elements.size() > 1 ? elements[1] - elements[0] : Expr(0);
  for (size_t i = 1; i < elements.size(); ++i)
    if (!(elements[i] == elements[0] + Expr(static_cast<int64_t>(i)) * step)) return std::nullopt;
  return Affine{elements[0], {step}};
}

// The running sum of equal numbers is their multiples.
std::optional<Affine> running_sum(const Affine& x, const Node& node) {
  const auto number = x.uniform();
  const auto axis = numbers(node.input(1));
  const Shape& shape = node.outputs[0]->shape();
  if (!number || !axis || axis->size() != 1 || shape.empty()) return std::nullopt;
  const auto along =
      static_cast<size_t>(axis->front() < 0 ? axis->front() + static_cast<int64_t>(shape.size()) : axis->front());
  const Expr step = *number, first = node.get_int("exclusive", 0) != 0 ? Expr(0) : step;
  const bool reverse = node.get_int("reverse", 0) != 0;
  Affine sum = x;
  sum.offset = reverse ? first + step * (shape.at(along) - Expr(1)) : first;
  sum.strides.at(along) = shape[along].is(1) ? Expr(0) : reverse ? Expr(0) - step : step;
  return sum;
}

std::optional<Affine> AffineAnalysis::result(const Node& node) const {
  const std::string& type = node.op_type;
  const Shape& shape = node.outputs[0]->shape();
  const Affine* x = of(node.input(0));
  if (type == "Range") {
    auto start = contents(node.input(0)), step = contents(node.input(2));
    if (start && step) return Affine{start->at(0), {step->at(0)}};
    return std::nullopt;
  }
  if (type == "ConstantOfShape") {
    const auto* fill = node.get<Tensor>("value");
    return fill ? std::optional(constant(fill->to_int64().at(0), shape.size())) : std::nullopt;
  }
  if (type == "Where") return elementwise(node);
  if (!x) {
    if (type == "And" || type == "Or") return elementwise(node);
    return std::nullopt;
  }
  if (type == "Identity") return *x;
  if (type == "Reshape" || type == "Squeeze" || type == "Unsqueeze" || type == "Flatten")
    return reshape(*x, node.inputs[0]->shape(), shape);
  if (type == "Expand") return over(*x, shape.size());
  if (type == "Transpose") {
    std::vector<int64_t> permutation = node.get_ints("perm");
    if (permutation.size() != shape.size()) return std::nullopt;
    Affine result{x->offset, {}};
    for (int64_t d : permutation) result.strides.push_back(x->strides.at(d));
    return result;
  }
  if (type == "Cast") {
    if (node.outputs[0]->dtype() != DType::boolean) return *x;
    auto value = x->uniform();
    return value ? std::optional(constant(*value != 0, shape.size())) : std::nullopt;
  }
  if (type == "Not") {
    auto value = x->uniform();
    return value ? std::optional(constant(*value == 0, shape.size())) : std::nullopt;
  }
  if (type == "CumSum") return running_sum(*x, node);
  if (type == "Slice") return slice(node);
  if (type == "Concat") return concat(node);
  if (type == "Gather") return gather(node);
  if (type == "GatherND") return gather_nd(node);
  return elementwise(node);
}

std::optional<Affine> AffineAnalysis::elementwise(const Node& node) const {
  const std::string& type = node.op_type;
  const Shape& shape = node.outputs[0]->shape();
  auto operand = [&](size_t i) -> std::optional<Affine> {
    const Affine* found = of(node.input(i));
    // Reductions come here, too; the analysis does not follow them.
    if (!found || found->strides.size() > shape.size()) return std::nullopt;
    return over(*found, shape.size());
  };
  auto a = operand(0);
  if (type == "Neg" && a) return scaled(*a, -1);
  if (node.inputs.size() == 3 && type == "Where") {
    auto chosen = a ? a->uniform() : std::nullopt;
    return chosen ? operand(*chosen ? 1 : 2) : std::nullopt;
  }
  if (node.inputs.size() != 2) return std::nullopt;
  auto b = operand(1);
  if (type == "And" || type == "Or") {
    auto left = a ? a->uniform() : std::nullopt, right = b ? b->uniform() : std::nullopt;
    int64_t decisive = type == "Or";
    if ((left && (*left != 0) == decisive) || (right && (*right != 0) == decisive))
      return constant(decisive, shape.size());
    return left && right ? std::optional(constant(!decisive, shape.size())) : std::nullopt;
  }
  if (!a || !b) return std::nullopt;
  if (type == "Add") return combine(*a, *b, 1);
  if (type == "Sub") return combine(*a, *b, -1);
  if (type == "Mul" && b->is_uniform()) return scaled(*a, b->offset);
  if (type == "Mul" && a->is_uniform()) return scaled(*b, a->offset);
  if (is_comparison(type)) {
    auto decided = decide(type, combine(*a, *b, -1), shape);
    return decided ? std::optional(constant(*decided, shape.size())) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<Affine> AffineAnalysis::slice(const Node& node) const {
  Affine result = *of(node.inputs[0]);
  const Shape& shape = node.inputs[0]->shape();
  if (result.is_uniform()) return result;
  auto starts = contents(node.input(1));
  if (!starts) return std::nullopt;
  auto axes = numbers(node.input(3)), steps = numbers(node.input(4));
  if ((node.input(3) && !axes) || (node.input(4) && !steps)) return std::nullopt;
  for (size_t i = 0; i < starts->size(); ++i) {
    int64_t axis = axes ? axes->at(i) : static_cast<int64_t>(i);
    if (axis < 0) axis += static_cast<int64_t>(shape.size());
    int64_t step = steps ? steps->at(i) : 1;
    Expr start = (*starts)[i];
    if (step < 1) return std::nullopt;
    // A start beyond the end makes the slice empty, so only negative starts need clamping.
    if (start.constant() && *start.constant() < 0)
      start = max(shape.at(axis) + start, 0);
    else if (!start.lower_bound() || *start.lower_bound() < 0)
      return std::nullopt;
    result.offset = result.offset + result.strides.at(axis) * start;
    result.strides[axis] = result.strides[axis] * Expr(step);
  }
  return result;
}

/// Joins pieces that continue each other; a piece of extent 1 continues any progression.
std::optional<Affine> AffineAnalysis::concat(const Node& node) const {
  size_t axis = axis_of(node, "axis", 0, node.outputs[0]->rank());
  std::vector<const Affine*> pieces;
  for (const Value* piece : node.inputs) {
    pieces.push_back(of(piece));
    if (!pieces.back()) return std::nullopt;
  }
  std::optional<Expr> stride;
  for (size_t i = 0; i < pieces.size(); ++i)
    if (!node.inputs[i]->shape()[axis].is(1)) stride = pieces[i]->strides[axis];
  if (!stride) stride = pieces.size() > 1 ? pieces[1]->offset - pieces[0]->offset : Expr(0);
  Affine result = *pieces[0];
  result.strides[axis] = *stride;
  Expr expected = result.offset;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Expr& extent = node.inputs[i]->shape()[axis];
    if (!(pieces[i]->offset == expected) || (!extent.is(1) && !(pieces[i]->strides[axis] == *stride)))
      return std::nullopt;
    for (size_t d = 0; d < result.strides.size(); ++d)
      if (d != axis && !(pieces[i]->strides[d] == result.strides[d])) return std::nullopt;
    expected = expected + *stride * extent;
  }
  return result;
}

std::optional<Affine> AffineAnalysis::gather(const Node& node) const {
  const Affine& table = *of(node.inputs[0]);
  size_t axis = axis_of(node, "axis", 0, table.strides.size());
  if (table.is_uniform()) return Affine{table.offset, std::vector<Expr>(node.outputs[0]->rank(), Expr(0))};
  const Affine* index = of(node.input(1));
  if (!index) return std::nullopt;
  auto least = lower_bound(*index, node.inputs[1]->shape());
  if (!least || *least < 0) return std::nullopt;  // negative indices count from the end
  Affine result{table.offset + table.strides[axis] * index->offset, {}};
  auto& strides = result.strides;
  strides.insert(strides.end(), table.strides.begin(), table.strides.begin() + axis);
  for (const Expr& stride : index->strides) strides.push_back(table.strides[axis] * stride);
  strides.insert(strides.end(), table.strides.begin() + axis + 1, table.strides.end());
  return result;
}

std::optional<std::vector<Affine>> AffineAnalysis::components(const Value* indices) const {
  auto without_last = [](Affine affine) {
    affine.strides.pop_back();
    return affine;
  };
  size_t last = indices->rank() - 1;
  std::vector<Affine> found;
  if (indices->shape()[last].is(1)) {
    const Affine* only = of(indices);
    if (!only) return std::nullopt;
    found.push_back(without_last(*only));
    return found;
  }
  const Node* concat = made_by(indices, "Concat");
  if (!concat || static_cast<size_t>(axis_of(*concat, "axis", 0, last + 1)) != last) return std::nullopt;
  for (const Value* piece : concat->inputs) {
    const Affine* component = of(piece);
    if (!component || !piece->shape()[last].is(1)) return std::nullopt;
    found.push_back(without_last(*component));
  }
  return found;
}

std::optional<Affine> AffineAnalysis::gather_nd(const Node& node) const {
  const Affine& table = *of(node.inputs[0]);
  if (table.is_uniform()) return Affine{table.offset, std::vector<Expr>(node.outputs[0]->rank(), Expr(0))};
  if (node.get_int("batch_dims", 0) != 0) return std::nullopt;
  auto index = components(node.input(1));
  if (!index) return std::nullopt;
  Shape leading = node.inputs[1]->shape();
  leading.pop_back();
  Affine result{table.offset, std::vector<Expr>(leading.size(), Expr(0))};
  for (size_t k = 0; k < index->size(); ++k) {
    auto least = lower_bound((*index)[k], leading);
    if (!least || *least < 0) return std::nullopt;
    result = combine(result, scaled((*index)[k], table.strides.at(k)), 1);
  }
  result.strides.insert(result.strides.end(), table.strides.begin() + index->size(), table.strides.end());
  return result;
}

}  // namespace tessera::rewrite

#include "tessera/rewrite/causal.h"

#include <algorithm>

#include "tessera/rewrite/edit.h"

namespace tessera::rewrite {
namespace {

/// b - a (or a - b) ≥ 0 as the condition that a comparison, or its negation, states; nullopt if it is none.
std::optional<Affine> condition(const AffineAnalysis& analysis, const Node& node, size_t rank, bool negated) {
  if (node.inputs.size() != 2) return std::nullopt;
  const Affine* a = analysis.of(node.inputs[0]);
  const Affine* b = analysis.of(node.inputs[1]);
  std::string_view type = node.op_type;
  bool less = type == "Less" || type == "LessOrEqual", greater = type == "Greater" || type == "GreaterOrEqual";
  if (!a || !b || (!less && !greater)) return std::nullopt;
  bool strict = (type == "Less" || type == "Greater") != negated;
  if (less != negated) std::swap(a, b);
  Affine difference{a->offset - b->offset - Expr(strict ? 1 : 0), std::vector<Expr>(rank, Expr(0))};
  for (size_t d = 0; d < rank; ++d) {
    if (d + a->strides.size() >= rank)
      difference.strides[d] = difference.strides[d] + a->strides[d + a->strides.size() - rank];
    if (d + b->strides.size() >= rank)
      difference.strides[d] = difference.strides[d] - b->strides[d + b->strides.size() - rank];
  }
  return difference;
}

/// Whether the mask has an element of its own for every query and key.
bool covers(const Value* mask, const Shape& scores) {
  size_t rank = mask->rank();
  return rank >= 2 && mask->shape()[rank - 2] == scores[scores.size() - 2] && mask->shape()[rank - 1] == scores.back();
}

/// Whether a Trilu keeps the upper or lower part from that diagonal on.
bool is_part(const Node& trilu, int64_t upper, int64_t diagonal) {
  auto given = numbers(trilu.input(1));
  if (trilu.input(1) && (!given || given->size() != 1)) return false;
  return trilu.get_int("upper", 1) == upper && (given ? given->at(0) : 0) == diagonal;
}

const Value* without_views(const Value* value) {
  while (true) {
    Node* view = made_by(value, "Expand");
    if (!view) view = made_by(value, "Reshape");
    if (!view) return value;
    value = view->inputs[0];
  }
}

/// A constant [1, …, n, m] that is true exactly for column ≤ row, or a slice of it from its first element on.
bool is_lower_triangle(const Value* value) {
  while (Node* slice = made_by(value, "Slice")) {
    auto starts = numbers(slice->input(1));
    auto steps = slice->input(4) ? numbers(slice->input(4)) : std::vector<int64_t>{};
    auto is = [](int64_t expected) { return [expected](int64_t given) { return given == expected; }; };
    if (!starts || !steps || !std::all_of(starts->begin(), starts->end(), is(0)) ||
        !std::all_of(steps->begin(), steps->end(), is(1)))
      return false;
    value = slice->inputs[0];
  }
  if (value->kind != ValueKind::constant || value->dtype() != DType::boolean || value->rank() < 2) return false;
  int64_t columns = value->data.dims.back(), rows = value->data.dims[value->rank() - 2];
  if (value->data.count() != rows * columns) return false;
  std::span<const uint8_t> elements = value->data.as<uint8_t>();
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      if ((elements[i * columns + j] != 0) != (j <= i)) return false;
  return true;
}

}  // namespace

bool is_minus_infinity(const Value* value) {
  auto scalar = scalar_of(value);
  return scalar && *scalar <= (value->dtype() == DType::float16 ? -6e4 : -1e30);
}

bool is_causal(const AffineAnalysis& analysis, const Value* predicate, const Shape& scores, bool negated) {
  while (Node* inverted = made_by(predicate, "Not")) {
    predicate = inverted->inputs[0];
    negated = !negated;
  }
  size_t rank = predicate->rank();
  if (!covers(predicate, scores)) return false;
  if (!negated && is_lower_triangle(predicate)) return true;
  if (!predicate->producer) return false;
  if (Node* trilu = made_by(predicate, "Trilu"))
    return is_scalar(without_views(trilu->inputs[0]), 1) && (negated ? is_part(*trilu, 1, 1) : is_part(*trilu, 0, 0));
  auto holds = condition(analysis, *predicate->producer, rank, negated);
  if (!holds || !holds->offset.is(0)) return false;
  for (size_t d = 0; d < rank; ++d)
    if (!holds->strides[d].is(d + 2 == rank ? 1 : d + 1 == rank ? -1 : 0)) return false;
  return true;
}

bool is_causal_penalty(const Value* mask, const Shape& scores) {
  if (!covers(mask, scores)) return false;
  Node* trilu = made_by(mask, "Trilu");
  if (!trilu) trilu = made_by(without_views(mask), "Trilu");
  return trilu && covers(trilu->outputs[0], scores) && is_part(*trilu, 1, 1) &&
         is_minus_infinity(without_views(trilu->inputs[0]));
}

}  // namespace tessera::rewrite

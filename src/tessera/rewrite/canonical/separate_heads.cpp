#include <algorithm>

#include "tessera/rewrite/canonical/divide.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/raise/match.h"

// Splits one projection that makes queries, keys and values of unequal widths (grouped-query attention) into one for
// each, so that each can be split by its own heads. Worked example, 6 query heads and 2 key heads of width 16:
//
//   MatMul(x, w [96, 160]) → Add(b [160]) → Split 96, 32, 32 → Reshape [b, s, 6 | 2 | 2, 16]
//   → MatMul(x, w.0 [96, 96]) → Add(b.0) → Reshape [b, s, 6, 16], and the same with w.1 and w.2 [96, 32]
//
// In a training step, gradients, moments and updates are divided with the parameter (divide.h), and so is a parameter
// that the step itself takes apart. The pieces may be slices, and the heads may be split off before or after (and
// transposed before). Equal pieces stay one projection: a Split of equal pieces is local, and slices become one. So do
// pieces that are not heads of one width: if the contraction is split, one product needs one reduction, three need
// three.
namespace tessera::rewrite {
namespace {

struct Piece {
  int64_t start = 0, size = 0;  ///< along the axis
  Value* result = nullptr;
};

struct Division {
  Value* whole = nullptr;
  size_t axis = 0;
  std::vector<Piece> pieces;  ///< in order, without gaps
};

std::optional<Division> divided_by_split(Node* split) {
  Division division{split->inputs[0], 0, {}};
  division.axis = static_cast<size_t>(axis_of(*split, "axis", 0, division.whole->rank()));
  int64_t start = 0;
  for (Value* result : split->outputs) {
    if (!result) return std::nullopt;
    auto size = result->shape()[division.axis].constant();
    if (!size) return std::nullopt;
    division.pieces.push_back({start, *size, result});
    start += *size;
  }
  return division;
}

/// The same if all uses of the value are slices of one dimension, and together they cover it. A state that changes may
/// have other uses, too: its update.
std::optional<Division> divided_by_slices(const Graph& graph, Value* whole) {
  Division division{whole, 0, {}};
  if (whole->uses.size() < 2 || graph.is_output(whole)) return std::nullopt;
  for (const Use& use : whole->uses) {
    auto range = use.index == 0 ? slice_of(*use.node) : std::nullopt;
    if (!range && whole->changing) continue;
    if (!range || (!division.pieces.empty() && range->axis != division.axis)) return std::nullopt;
    division.axis = range->axis;
    division.pieces.push_back({range->start, range->end - range->start, use.node->outputs[0]});
  }
  std::sort(division.pieces.begin(), division.pieces.end(),
            [](const Piece& a, const Piece& b) { return a.start < b.start; });
  int64_t at = 0;
  for (const Piece& piece : division.pieces) {
    if (piece.start != at || piece.size < 1) return std::nullopt;
    at += piece.size;
  }
  return !division.pieces.empty() && whole->shape()[division.axis].is(at) ? std::optional(division) : std::nullopt;
}

bool is_parameter(const Value* value) {
  return value->kind == ValueKind::state;
}

/// A bias [n] of a product's columns.
bool is_bias(const Value* value, const Expr& columns) {
  if (value->rank() == 0 || !(value->shape().back() == columns) || !(product(value->shape()) == columns)) return false;
  return value->kind == ValueKind::constant || is_parameter(value);
}

/// The columns of the product with a parameter that computes a value, per element of the divided axis: MatMul [..., k]
/// × [k, n], or Gemm with the weight [n, k], and perhaps a bias and changes of shape. Nullopt if no such product
/// computes it.
std::optional<int64_t> columns_per_element(const Graph& graph, const Division& division) {
  int64_t columns = 1;
  Value* at = division.whole;
  size_t axis = division.axis;
  for (bool first = true;; first = false) {
    Node* node = at->producer;
    if (!node || !node->domain.empty() || graph.is_output(at) || (!first && at->uses.size() != 1)) return std::nullopt;
    if (node->is("Transpose")) {
      auto permutation = node->get_ints("perm");
      if (permutation.size() != at->rank()) return std::nullopt;
      axis = static_cast<size_t>(permutation[axis]);
    } else if (node->is("Reshape")) {
      // [..., n] → [..., heads, width], divided along the heads; or other dimensions before the divided last one.
      const Shape &from = node->inputs[0]->shape(), &to = at->shape();
      auto width = to.back().constant();
      const bool splits = to.size() == from.size() + 1 && axis + 2 == to.size() && width && columns == 1 &&
                          std::equal(from.begin(), from.end() - 1, to.begin());
      if (!splits && (axis + 1 != to.size() || from.empty() || !(from.back() == to.back()))) return std::nullopt;
      if (splits) columns = *width;
      axis = from.size() - 1;
    } else if (node->is("Add")) {
      const size_t bias = node->inputs[0]->shape() == at->shape() ? 1 : 0;
      if (axis + 1 != at->rank() || !(node->inputs[1 - bias]->shape() == at->shape()) ||
          !is_bias(node->inputs[bias], at->shape().back()))
        return std::nullopt;
      at = node->inputs[1 - bias];
      continue;
    } else {
      const bool turned = node->is("Gemm") && node->get_int("transB", 0) == 1 && node->get_int("transA", 0) == 0 &&
                          node->get_float("alpha", 1) == 1 && !node->input(2);
      if ((!node->is("MatMul") && !turned) || axis + 1 != at->rank()) return std::nullopt;
      const Value* weight = node->inputs[1];
      if (const Node* transpose = made_by(weight, "Transpose")) weight = transpose->inputs[0];
      if (weight->rank() != 2 || !is_parameter(weight)) return std::nullopt;
      return columns;
    }
    at = node->inputs[0];
  }
}

/// Whether every piece consists of heads of one width, or is reshaped to such heads at once.
bool are_heads(const Division& division, int64_t columns) {
  if (columns > 1) return true;
  std::optional<Expr> width;
  auto agrees = [&](const Expr& own) {
    if (!width) width = own;
    return own == *width;
  };
  for (const Piece& piece : division.pieces) {
    if (division.axis + 1 != piece.result->rank()) return false;
    for (const Use& use : piece.result->uses)
      if (!agrees(use.node->is("Reshape") ? use.node->outputs[0]->shape().back() : Expr(piece.size))) return false;
  }
  return width.has_value();
}

/// Slices into equal pieces become a Split, which is local if all pieces have the same sharding.
void join_slices(Graph& graph, const Division& division) {
  Node* first = division.pieces.front().result->producer;
  if (!first->is("Slice")) return;
  std::vector<int64_t> sizes;
  for (const Piece& piece : division.pieces) sizes.push_back(piece.size);
  Node* split = emit_node(graph, "Split", {division.whole, graph.constant_int64(sizes)}, first,
                          {attribute("axis", static_cast<int64_t>(division.axis))}, division.whole->name + "_piece",
                          sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) replace(graph, division.pieces[i].result, split->outputs[i]);
}

/// Whether it has divided the value; nodes are gone then.
bool separate(Graph& graph, const Division& division) {
  for (const Piece& piece : division.pieces)
    if (graph.is_output(piece.result)) return false;
  const bool is_state = division.whole->changing;  // then the products are separate already
  const auto columns = is_state ? 1 : columns_per_element(graph, division);
  if (!columns) return false;
  auto same = [&](const Piece& piece) { return piece.size == division.pieces.front().size; };
  if (std::all_of(division.pieces.begin(), division.pieces.end(), same)) {
    if (!is_state) join_slices(graph, division);
    return false;
  }
  if (!is_state && !are_heads(division, *columns)) return false;
  Cut cut{division.axis, {}};
  for (const Piece& piece : division.pieces) cut.sizes.push_back(piece.size);
  return divide(graph, division.whole, cut);
}

bool separate_one(Graph& graph) {
  for (Node* node : nodes_of(graph)) {
    std::optional<Division> division;
    if (node->is("Split"))
      division = divided_by_split(node);
    else if (node->outputs.size() == 1 && node->outputs[0])
      division = divided_by_slices(graph, node->outputs[0]);
    if (division && separate(graph, *division)) return true;
  }
  for (Value* state : graph.values_of(ValueKind::state)) {
    const auto division = state->changing ? divided_by_slices(graph, state) : std::nullopt;
    if (division && separate(graph, *division)) return true;
  }
  return false;
}

}  // namespace

void separate_heads(OnnxModel& model) {
  while (separate_one(*model.graph)) {
  }
  model.graph->erase_dead();
}

}  // namespace tessera::rewrite

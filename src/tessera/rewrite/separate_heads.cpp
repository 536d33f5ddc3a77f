#include <algorithm>
#include <cstring>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/match.h"
#include "tessera/rewrite/passes.h"

// Splits one projection that makes queries, keys and values of unequal widths (grouped-query attention) into one for
// each, so that each can be split by its own heads. Worked example, 6 query heads and 2 key heads of width 16:
//
//   MatMul(x, w [96, 160]) → Add(b [160]) → Split 96, 32, 32 → Reshape [b, s, 6 | 2 | 2, 16]
//   → MatMul(x, w.0 [96, 96]) → Add(b.0) → Reshape [b, s, 6, 16], and the same with w.1 and w.2 [96, 32]
//
// The pieces may be slices, and the heads may be split off before or after (and transposed before). Equal pieces stay
// one projection: a Split of equal pieces is local, and slices become one. So do pieces that are not heads of one
// width: if the contraction is split, one product needs one reduction, three need three.
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

/// The same if all uses of the value are slices of one dimension, and together they cover it.
std::optional<Division> divided_by_slices(const Graph& graph, Value* whole) {
  Division division{whole, 0, {}};
  if (whole->uses.size() < 2 || graph.is_output(whole)) return std::nullopt;
  for (const Use& use : whole->uses) {
    auto range = use.index == 0 ? slice_of(*use.node) : std::nullopt;
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
  return whole->shape()[division.axis].is(at) ? std::optional(division) : std::nullopt;
}

/// The nodes from a product to the value that is divided, beginning at the product.
struct Projection {
  Node* product = nullptr;  ///< MatMul [..., k] × [k, n], or Gemm with the weight [n, k]
  std::vector<Node*> steps;
  int64_t width = 1;  ///< columns of the product per element of the divided axis
};

bool is_parameter(const Graph& graph, const Value* value) {
  return value->kind == ValueKind::state && !value->changing && used_once(graph, value) &&
         bits_of(value->dtype()) % 8 == 0;
}

/// A bias [n] of a product's columns.
bool is_bias(const Graph& graph, const Value* value, const Expr& columns) {
  if (value->rank() == 0 || !(value->shape().back() == columns) || !(product(value->shape()) == columns)) return false;
  return value->kind == ValueKind::constant || is_parameter(graph, value);
}

std::optional<Projection> trace(const Graph& graph, const Division& division) {
  Projection found;
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
      const bool splits = to.size() == from.size() + 1 && axis + 2 == to.size() && width && found.width == 1 &&
                          std::equal(from.begin(), from.end() - 1, to.begin());
      if (!splits && (axis + 1 != to.size() || from.empty() || !(from.back() == to.back()))) return std::nullopt;
      if (splits) found.width = *width;
      axis = from.size() - 1;
    } else if (node->is("Add")) {
      const Expr& columns = at->shape().back();
      const size_t bias = node->inputs[0]->shape() == at->shape() ? 1 : 0;
      if (axis + 1 != at->rank() || !(node->inputs[1 - bias]->shape() == at->shape()) ||
          !is_bias(graph, node->inputs[bias], columns))
        return std::nullopt;
      found.steps.insert(found.steps.begin(), node);
      at = node->inputs[1 - bias];
      continue;
    } else {
      const bool turned = node->is("Gemm") && node->get_int("transB", 0) == 1 && node->get_int("transA", 0) == 0 &&
                          node->get_float("alpha", 1) == 1 && !node->input(2);
      if ((!node->is("MatMul") && !turned) || axis + 1 != at->rank()) return std::nullopt;
      if (node->inputs[1]->rank() != 2 || !is_parameter(graph, node->inputs[1])) return std::nullopt;
      found.product = node;
      return found;
    }
    found.steps.insert(found.steps.begin(), node);
    at = node->inputs[0];
  }
}

/// Whether every piece consists of heads of one width, or is at once reshaped to them.
bool are_heads(const Division& division, const Projection& projection) {
  if (projection.width > 1) return true;
  std::optional<Expr> width;
  auto agrees = [&](const Expr& own) {
    if (!width) width = own;
    return own == *width;
  };
  for (const Piece& piece : division.pieces) {
    if (piece.result->uses.empty() || division.axis + 1 != piece.result->rank()) return false;
    for (const Use& use : piece.result->uses)
      if (!agrees(use.node->is("Reshape") ? use.node->outputs[0]->shape().back() : Expr(piece.size))) return false;
  }
  return true;
}

/// Elements [start, start + size) of the last dimension, or of the first one if it is the only other one. Whole rows
/// are shared, columns copied.
Tensor part_of(const Tensor& whole, size_t dim, int64_t start, int64_t size) {
  const size_t element = static_cast<size_t>(bits_of(whole.dtype)) / 8;
  const size_t inner = static_cast<size_t>(count_of(std::span(whole.dims).subspan(dim + 1))) * element;
  const size_t outer = static_cast<size_t>(count_of(std::span(whole.dims).first(dim)));
  const size_t line = static_cast<size_t>(whole.dims[dim]) * inner, bytes = static_cast<size_t>(size) * inner;
  const std::byte* from = whole.data + static_cast<size_t>(start) * inner;
  Dims dims = whole.dims;
  dims[dim] = size;
  if (outer == 1) {
    Tensor part = whole;
    part.dims = dims;
    part.data = from;
    part.bytes = bytes;
    return part;
  }
  Tensor part = Tensor::zeros(whole.dtype, dims);
  for (size_t i = 0; i < outer; ++i) std::memcpy(part.mutable_data() + i * bytes, from + i * line, bytes);
  return part;
}

Value* part_of(Graph& graph, const Value* whole, size_t dim, int64_t start, int64_t size, size_t index) {
  Tensor data = part_of(whole->data, dim, start, size);
  const std::string name = fmt::format("{}.{}", whole->name, index);
  return whole->kind == ValueKind::state ? graph.add_state(name, std::move(data))
                                         : graph.add_constant(name, std::move(data));
}

Value* projected_piece(Graph& graph, const Division& division, const Projection& projection, size_t index) {
  const Piece& piece = division.pieces[index];
  const int64_t start = piece.start * projection.width, size = piece.size * projection.width;
  Node* product = projection.product;
  Node* before = division.whole->producer;
  const size_t columns = product->is("Gemm") ? 0 : 1;
  Value* weight = part_of(graph, product->inputs[1], columns, start, size, index);
  const std::string name = fmt::format("{}.{}", product->outputs[0]->name, index);
  Value* at = emit(graph, product->op_type, {product->inputs[0], weight}, before, product->attributes, name);
  at->producer->name = product->name;
  at->producer->extra = product->extra;
  for (Node* step : projection.steps) {
    if (step->is("Transpose")) {
      at = emit(graph, "Transpose", {at}, before, step->attributes);
    } else if (step->is("Reshape")) {
      Shape shape = step->outputs[0]->shape();
      if (shape.back() == step->inputs[0]->shape().back())
        shape.back() = at->shape().back();
      else
        shape[shape.size() - 2] = piece.size;
      at = reshaped(graph, at, shape, before);
    } else {
      std::vector<Value*> operands = step->inputs;
      for (Value*& operand : operands)
        operand = operand->shape() == step->outputs[0]->shape()
                      ? at
                      : part_of(graph, operand, operand->rank() - 1, start, size, index);
      at = emit(graph, "Add", operands, before, {}, fmt::format("{}.{}", step->outputs[0]->name, index));
    }
  }
  return at;
}

/// Slices into equal pieces become a Split, which is local if the pieces are split alike.
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

void separate(Graph& graph, const Division& division) {
  for (const Piece& piece : division.pieces)
    if (graph.is_output(piece.result)) return;
  auto projection = trace(graph, division);
  if (!projection) return;
  auto same = [&](const Piece& piece) { return piece.size == division.pieces.front().size; };
  if (std::all_of(division.pieces.begin(), division.pieces.end(), same)) {
    join_slices(graph, division);
  } else if (are_heads(division, *projection)) {
    for (size_t i = 0; i < division.pieces.size(); ++i)
      replace(graph, division.pieces[i].result, projected_piece(graph, division, *projection, i));
  }
}

}  // namespace

void separate_heads(OnnxModel& model) {
  Graph& graph = *model.graph;
  for (Node* node : nodes_of(graph)) {
    std::optional<Division> division;
    if (node->is("Split"))
      division = divided_by_split(node);
    else if (node->outputs.size() == 1 && node->outputs[0])
      division = divided_by_slices(graph, node->outputs[0]);
    if (division) separate(graph, *division);
  }
  graph.erase_dead();
}

}  // namespace tessera::rewrite

#include <algorithm>
#include <numeric>

#include "tessera/base/checked.h"
#include "tessera/base/counted.h"
#include "tessera/ops/examples/examples.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/node_builder.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

// --- Transpose

std::vector<size_t> permutation(const Node& node) {
  size_t rank = shape_of(node, 0).size();
  std::vector<int64_t> given(rank);
  std::iota(given.rbegin(), given.rend(), 0);
  given = node.get_ints("perm", given);
  if (given.size() != rank)
    fail_node(node, "perm has {} for an input of rank {}; give one per dimension",
              counted(given.size(), "entry", "entries"), rank);
  for (int64_t dim : given)  // the standard counts other axes from the end, and not these
    if (dim < 0) fail_node(node, "perm holds {}; its entries are the dimensions 0 to {}, each once", dim, rank - 1);
  return normalize_axes(node, given, rank, "perm");
}

void infer_transpose(Node& node) {
  const Value& data = operand(node, 0);
  Shape shape;
  for (size_t d : permutation(node)) shape.push_back(data.shape()[d]);
  set_result(node, 0, data.dtype(), std::move(shape), content_of(&data));
}

Rule transpose_rule(const Node& node) {
  Rule rule = dimension_rule(node, std::vector<bool>(shape_of(node, 0).size(), true));
  auto& result = rule.results.emplace_back();
  for (size_t d : permutation(node)) result.push_back(rule.operands[0][d]);
  return moving(std::move(rule), {0});
}

// --- Concat

size_t concat_axis(const Node& node) {
  const int64_t* axis = node.get<int64_t>("axis");
  if (!axis) fail_node(node, "its attribute 'axis' is missing");
  return normalize_axis(node, *axis, shape_of(node, 0).size());
}

void infer_concat(Node& node) {
  const Value& first = operand(node, 0);
  size_t axis = concat_axis(node);
  Shape shape = first.shape();
  std::optional<std::vector<Expr>> content = content_of(&first);
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const Value& next = operand(node, i);
    if (next.dtype() != first.dtype())
      fail_node(node, "operands '{}' and '{}' are {} and {}; Concat needs one type; insert a Cast", first.name,
                next.name, name_of(first.dtype()), name_of(next.dtype()));
    if (next.rank() != shape.size())
      fail_node(node, "operands '{}' and '{}' have the shapes {} and {}; Concat needs equal ranks", first.name,
                next.name, to_string(first.shape()), to_string(next.shape()));
    for (size_t d = 0; d < shape.size(); ++d) {
      auto extent = d == axis ? shape[d] + next.shape()[d] : same_extent(shape[d], next.shape()[d]);
      if (!extent)
        fail_node(node, "operands '{}' and '{}' have the shapes {} and {}; only dimension {} may differ", first.name,
                  next.name, to_string(first.shape()), to_string(next.shape()), axis);
      shape[d] = *extent;
    }
    auto more = content_of(&next);
    if (content && more)
      content->insert(content->end(), more->begin(), more->end());
    else
      content.reset();
  }
  set_result(node, 0, first.dtype(), std::move(shape), std::move(content));
}

// Whether ranks can tell before the run which parts of unequal pieces the others need. If several extents are symbols,
// every pair of ranks would have a message, though nearly all would be empty.
bool has_known_pieces(const Node& node, size_t axis) {
  return std::count_if(node.inputs.begin(), node.inputs.end(),
                       [&](const Value* operand) { return !operand->shape()[axis].is_constant(); }) <= 1;
}

// If the pieces are equal, the axis is pieces times a piece's extent, so that a split of every piece splits the result.
// If they are not, result element j is element j - (extents of the pieces before) of the piece that has such an
// element: a rank fetches what its part of the result has of each piece.
Rule concat_rule(const Node& node) {
  Rule rule;
  size_t axis = concat_axis(node);
  const Shape& shape = node.output()->shape();
  std::vector<DimFactors> dims(shape.size());
  for (size_t d = 0; d < shape.size(); ++d)
    if (d != axis && !shape[d].is(1)) dims[d] = {rule.add(factor_name(d), shape[d])};
  std::vector<DimFactors> result = dims;
  const Expr& piece = shape_of(node, 0)[axis];
  const bool equal = std::all_of(node.inputs.begin(), node.inputs.end(),
                                 [&](const Value* operand) { return operand->shape()[axis] == piece; });
  if (equal && !piece.is(1)) {
    if (node.inputs.size() > 1)
      result[axis].push_back(rule.add("pieces", static_cast<int64_t>(node.inputs.size()), FactorKind::whole));
    const int along = rule.add(factor_name(axis), piece);
    dims[axis].push_back(along);
    result[axis].push_back(along);
  } else if (!equal && has_known_pieces(node, axis)) {
    dims[axis] = result[axis] = {rule.add(factor_name(axis), shape[axis], FactorKind::halo)};
    Expr before = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      rule.factors[dims[axis][0]].windows[static_cast<int>(i)] = {1, 1, 0 - before, 0 - before};
      before = before + shape_of(node, i)[axis];
    }
  }
  rule.operands.assign(node.inputs.size(), dims);
  rule.results = {result};
  std::vector<int> all(node.inputs.size());
  std::iota(all.begin(), all.end(), 0);
  return moving(std::move(rule), all);
}

std::vector<Value*> localize_concat(Localizer& local) {
  const size_t axis = concat_axis(local.node);
  for (size_t i = 0; i < local.inputs.size(); ++i)
    if (local.is_split_halo(i, axis)) local.inputs[i] = local.widen(local.inputs[i], i, axis, nullptr).value;
  return local.same();
}

// --- Split

size_t split_axis(const Node& node) {
  return normalize_axis(node, node.get_int("axis", 0), shape_of(node, 0).size());
}

// The extents of the pieces along the axis.
std::vector<Expr> pieces(const Node& node) {
  const Expr& extent = shape_of(node, 0)[split_axis(node)];
  auto count = static_cast<int64_t>(node.outputs.size());
  if (has_operand(node, 1)) {
    auto given = content_operand(node, 1, "split");
    if (static_cast<int64_t>(given.size()) != count)
      fail_node(node, "split names {} and there are {}; give one extent per result", counted(given.size(), "piece"),
                counted(count, "result"));
    Expr sum = std::accumulate(given.begin(), given.end(), Expr(0));
    if (!same_extent(sum, extent))
      fail_node(node, "the pieces {} add up to {}, but the dimension has {}", to_string(given), sum.str(),
                extent.str());
    return given;
  }
  if (int64_t named = node.get_int("num_outputs", count); named != count)
    fail_node(node, "num_outputs is {} and there are {}", named, counted(count, "result"));
  auto exact = Expr::exact_divide(extent, count);
  Expr piece = exact ? *exact : ceildiv(extent, count);
  std::vector<Expr> all(count, piece);
  if (!exact) all.back() = max(0, extent - piece * (count - 1));
  return all;
}

void infer_split(Node& node) {
  const Value& data = operand(node, 0);
  size_t axis = split_axis(node);
  auto content = content_of(&data);
  size_t start = 0;
  auto extents = pieces(node);
  for (size_t i = 0; i < extents.size(); ++i) {
    Shape shape = data.shape();
    shape[axis] = extents[i];
    std::optional<std::vector<Expr>> part;
    if (auto count = extents[i].constant(); content && count && start + *count <= content->size()) {
      part.emplace(content->begin() + start, content->begin() + start + *count);
      start += *count;
    } else {
      content.reset();
    }
    set_result(node, i, data.dtype(), std::move(shape), std::move(part));
  }
}

// Equal pieces: the axis is pieces times a piece's extent, so that a split of the latter splits every result.
Rule split_rule(const Node& node) {
  size_t axis = split_axis(node);
  std::vector<bool> stays(shape_of(node, 0).size(), true);
  stays[axis] = false;
  Rule rule = dimension_rule(node, stays);
  std::vector<DimFactors> result = rule.operands[0];
  auto extents = pieces(node);
  bool equal = std::equal(extents.begin() + 1, extents.end(), extents.begin());
  if (equal) {
    if (extents.size() > 1)
      rule.operands[0][axis].push_back(rule.add("pieces", static_cast<int64_t>(extents.size()), FactorKind::whole));
    if (!extents[0].is(1)) {
      int piece = rule.add(factor_name(axis), extents[0]);
      rule.operands[0][axis].push_back(piece);
      result[axis].push_back(piece);
    }
  }
  rule.results.assign(node.outputs.size(), result);
  return moving(std::move(rule), {0});
}

std::vector<Value*> localize_split(Localizer& local) {
  size_t axis = split_axis(local.node);
  int piece = local.factor(factor_name(axis));
  if (piece < 0 || !local.split[piece]) return local.same();
  std::vector<Expr> extents(local.node.outputs.size(), local.extents[piece]);
  local.inputs.resize(2);
  local.inputs[1] = local.graph.add_expression(local.node.inputs[0]->name + "_split", std::move(extents));
  auto results = local.same();
  for (Value* result : results)
    if (result) result->producer->remove_attribute("num_outputs");
  return results;
}

// --- DepthToSpace and SpaceToDepth

int64_t block_size(const Node& node) {
  int64_t block = node.get_int("blocksize", 0);
  if (block < 1) fail_node(node, "its attribute 'blocksize' is {}; it must be at least 1", block);
  if (shape_of(node, 0).size() != 4)
    fail_node(node, "its input has the shape {}; it must be [N, C, H, W]", to_string(shape_of(node, 0)));
  return block;
}

Expr divided(const Node& node, const Expr& extent, int64_t by, std::string_view what) {
  auto quotient = Expr::exact_divide(extent, by);
  if (!quotient && extent.is_constant())
    fail_node(node, "{} is {}, which blocks of {} do not divide", what, extent.str(), by);
  return quotient ? *quotient : floordiv(extent, by);
}

void infer_depth_to_space(Node& node) {
  int64_t block = block_size(node);
  const Value& data = operand(node, 0);
  const Shape& from = data.shape();
  set_result(node, 0, data.dtype(),
             {from[0], divided(node, from[1], checked_multiply(block, block, node.label()), "the number of channels"),
              from[2] * block, from[3] * block});
}

void infer_space_to_depth(Node& node) {
  int64_t block = block_size(node);
  const Value& data = operand(node, 0);
  const Shape& from = data.shape();
  set_result(node, 0, data.dtype(),
             {from[0], from[1] * block * block, divided(node, from[2], block, "the height"),
              divided(node, from[3], block, "the width")});
}

Rule blocks_rule(const Node& node, std::string_view line) {
  Rule rule = Rule::parse(line, {&shape_of(node, 0)}, {&node.output()->shape()});
  for (const char* block : {"p", "q"}) rule.factor(block).size = block_size(node);
  return moving(std::move(rule), {0});
}

Rule depth_to_space_rule(const Node& node) {
  bool columns_first = node.get_string("mode", "DCR") == "CRD";
  return blocks_rule(node, columns_first ? "n (c p q) h w -> n c (h p) (w q)" : "n (p q c) h w -> n c (h p) (w q)");
}

Rule space_to_depth_rule(const Node& node) {
  return blocks_rule(node, "n c (h p) (w q) -> n (p q c) h w");
}

// Parts of blocks need not be square: the operator, as a transpose of the rule's factors.
std::vector<Value*> localize_blocks(Localizer& local) {
  if (!local.split[local.factor("p")] && !local.split[local.factor("q")]) return local.same();
  std::vector<int> from, to;
  for (const DimFactors& dim : local.rule.operands[0]) from.insert(from.end(), dim.begin(), dim.end());
  for (const DimFactors& dim : local.rule.results[0]) to.insert(to.end(), dim.begin(), dim.end());
  Shape factors;
  for (int factor : from) factors.push_back(local.extents[factor]);
  std::vector<int64_t> order;
  for (int factor : to) order.push_back(std::find(from.begin(), from.end(), factor) - from.begin());
  NodeBuilder build(local.graph, local.node.outputs[0]->name);
  return {build.reshape(build.transpose(build.reshape(local.inputs[0], factors), order), *local.outputs[0].shape)};
}

// --- Trilu: which elements it keeps depends on their global position

std::optional<Expr> diagonal(const Node& node) {
  if (!has_operand(node, 1)) return Expr(0);
  auto content = content_of(node.input(1));
  return content && content->size() == 1 ? std::optional(content->front()) : std::nullopt;
}

void infer_trilu(Node& node) {
  const Value& data = operand(node, 0);
  if (data.rank() < 2)
    fail_node(node, "its input has the shape {}; it must be a matrix or a batch of them", to_string(data.shape()));
  set_result(node, 0, data.dtype(), data.shape());
}

Rule trilu_rule(const Node& node) {
  size_t rank = shape_of(node, 0).size();
  std::vector<bool> stays(rank, true);
  if (!diagonal(node)) stays[rank - 2] = stays[rank - 1] = false;
  Rule rule = dimension_rule(node, stays);
  rule.results = {rule.operands[0]};
  for (size_t d : {rank - 2, rank - 1})
    for (int f : rule.operands[0][d]) rule.factors[f].kind = FactorKind::index;
  rule.partial(Reduction::sum, {0});
  return rule;
}

// Kept is column - row ≥ k (or ≤ k) of global positions; the local diagonal is k + first row - first column.
std::vector<Value*> localize_trilu(Localizer& local) {
  size_t rank = local.node.inputs[0]->rank();
  int row = local.factor(factor_name(rank - 2)), column = local.factor(factor_name(rank - 1));
  auto is_split = [&](int f) { return f >= 0 && local.split[f]; };
  if (!is_split(row) && !is_split(column)) return local.same();
  Expr k = *diagonal(local.node);
  if (is_split(row)) k = k + local.offsets[row];
  if (is_split(column)) k = k - local.offsets[column];
  local.inputs.resize(2);
  return local.same_with(1, {k}, true);
}

}  // namespace

std::vector<OpDef> movement_ops() {
  return {
      {.type = "Transpose",
       .infer = infer_transpose,
       .rule = transpose_rule,
       .gradient = transpose_gradient,
       .pass_through = true,
       .moves = Moves::all,
       .examples = transpose_examples},
      {.type = "Concat",
       .infer = infer_concat,
       .rule = concat_rule,
       .localize = localize_concat,
       .gradient = concat_gradient,
       .moves = Moves::some,
       .examples = concat_examples},
      {.type = "Split",
       .infer = infer_split,
       .rule = split_rule,
       .localize = localize_split,
       .gradient = split_gradient,
       .pass_through = true,
       .values = {1},
       .moves = Moves::part,
       .examples = split_examples},
      {.type = "DepthToSpace",
       .infer = infer_depth_to_space,
       .rule = depth_to_space_rule,
       .localize = localize_blocks,
       .gradient = blocks_gradient,
       .moves = Moves::all,
       .examples = block_examples},
      {.type = "SpaceToDepth",
       .infer = infer_space_to_depth,
       .rule = space_to_depth_rule,
       .localize = localize_blocks,
       .gradient = blocks_gradient,
       .moves = Moves::all,
       .examples = block_examples},
      {.type = "Trilu",
       .infer = infer_trilu,
       .rule = trilu_rule,
       .localize = localize_trilu,
       .gradient = trilu_gradient,
       .values = {1},
       .moves = Moves::some,
       .examples = trilu_examples},
  };
}

}  // namespace tessera::ops

#include <algorithm>
#include <numeric>

#include "tessera/ops/infer.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/slice.h"

namespace tessera::ops {
namespace {

constexpr Reduction kReductions[] = {Reduction::sum, Reduction::max, Reduction::min};

// A rule of `node` in which every dimension of the first operand has a factor, but those where `stays` is false and
// those of extent 1; other operands have none. Results are left to the caller.
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

Rule with_partials(Rule rule, const std::vector<int>& operands) {
  for (Reduction reduction : kReductions) rule.partial(reduction, operands);
  return rule;
}

// --- Transpose

std::vector<size_t> permutation(const Node& node) {
  size_t rank = shape_of(node, 0).size();
  std::vector<int64_t> given(rank);
  std::iota(given.rbegin(), given.rend(), 0);
  given = node.get_ints("perm", given);
  if (given.size() != rank)
    fail_node(node, "perm has {} entries for an input of rank {}; give one per dimension", given.size(), rank);
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
  return with_partials(std::move(rule), {0});
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

Rule concat_rule(const Node& node) {
  Rule rule;
  size_t axis = concat_axis(node);
  const Shape& shape = node.output()->shape();
  std::vector<DimFactors> dims(shape.size());
  for (size_t d = 0; d < shape.size(); ++d)
    if (d != axis && !shape[d].is(1)) dims[d] = {rule.add(factor_name(d), shape[d])};
  rule.operands.assign(node.inputs.size(), dims);
  rule.results = {dims};
  std::vector<int> all(node.inputs.size());
  std::iota(all.begin(), all.end(), 0);
  return with_partials(std::move(rule), all);
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
      fail_node(node, "split names {} pieces and there are {} results; give one extent per result", given.size(),
                count);
    Expr sum = std::accumulate(given.begin(), given.end(), Expr(0));
    if (!same_extent(sum, extent))
      fail_node(node, "the pieces {} add up to {}, but the dimension has {}", to_string(given), sum.str(),
                extent.str());
    return given;
  }
  if (int64_t named = node.get_int("num_outputs", count); named != count)
    fail_node(node, "num_outputs is {} and there are {} results", named, count);
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
  return with_partials(std::move(rule), {0});
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

// --- Slice

// Per dimension the range taken; nullopt if it depends on data. Dimensions that are not sliced are covered.
std::vector<std::optional<SliceRange>> slice_ranges(const Node& node) {
  const Shape& shape = shape_of(node, 0);
  std::vector<std::optional<SliceRange>> ranges;
  for (const Expr& extent : shape) ranges.push_back(SliceRange{0, extent, 1});
  auto starts = content_of(&operand(node, 1)), ends = content_of(&operand(node, 2));
  auto count = shape_of(node, 1).empty() ? std::nullopt : shape_of(node, 1)[0].constant();
  if (!count || shape_of(node, 2).size() != 1) fail_node(node, "starts and ends must be lists of a fixed length");
  std::vector<size_t> axes(*count);
  std::iota(axes.begin(), axes.end(), size_t{0});
  if (auto given = axes_operand(node, 3, shape.size())) axes = *given;
  std::vector<int64_t> steps(*count, 1);
  if (has_operand(node, 4)) steps = constant_operand(node, 4, "steps");
  size_t length = *count;
  if ((starts && starts->size() != length) || (ends && ends->size() != length) || axes.size() != length ||
      steps.size() != length)
    fail_node(node, "starts, ends, axes and steps differ in length; give one of each per sliced dimension");
  if (length > shape.size()) fail_node(node, "{} dimensions are sliced of an input of rank {}", length, shape.size());
  for (size_t i = 0; i < length; ++i) {
    if (steps[i] == 0) fail_node(node, "the step of dimension {} is 0; it must not be", axes[i]);
    ranges[axes[i]] =
        starts && ends ? std::optional(slice_range((*starts)[i], (*ends)[i], steps[i], shape[axes[i]])) : std::nullopt;
  }
  return ranges;
}

void infer_slice(Node& node) {
  const Value& data = operand(node, 0);
  auto ranges = slice_ranges(node);
  Shape shape;
  for (size_t d = 0; d < ranges.size(); ++d) {
    // The model's own word, where the range depends on data.
    shape.push_back(ranges[d] ? ranges[d]->count
                              : declared_shape(node, content_of(node.input(1)) ? 2 : 1, "range", data.rank())[d]);
  }
  std::optional<std::vector<Expr>> content;
  if (auto all = content_of(&data); all && data.rank() == 1 && ranges[0]) {
    auto start = ranges[0]->start.constant(), count = ranges[0]->count.constant();
    if (start && count) {
      content.emplace();
      for (int64_t i = 0; i < *count; ++i) content->push_back((*all)[*start + i * ranges[0]->step]);
    }
  }
  set_result(node, 0, data.dtype(), std::move(shape), std::move(content));
}

Rule slice_rule(const Node& node) {
  const Shape& shape = shape_of(node, 0);
  auto ranges = slice_ranges(node);
  std::vector<bool> stays;
  for (size_t d = 0; d < shape.size(); ++d) stays.push_back(ranges[d] && ranges[d]->covers(shape[d]));
  Rule rule = dimension_rule(node, stays);
  rule.results = {rule.operands[0]};
  return with_partials(std::move(rule), {0});
}

// --- Pad

// Elements added before and after each dimension; nullopt if that depends on data.
std::optional<std::vector<std::pair<Expr, Expr>>> paddings(const Node& node) {
  size_t rank = shape_of(node, 0).size();
  auto pads = content_of(&operand(node, 1));
  if (!pads) return std::nullopt;
  std::vector<size_t> axes(rank);
  std::iota(axes.begin(), axes.end(), size_t{0});
  if (auto given = axes_operand(node, 3, rank)) axes = *given;
  if (pads->size() != 2 * axes.size())
    fail_node(node, "pads has {} entries for {} dimensions; give one before and one after each", pads->size(),
              axes.size());
  std::vector<std::pair<Expr, Expr>> result(rank);
  for (size_t i = 0; i < axes.size(); ++i) result[axes[i]] = {(*pads)[i], (*pads)[i + axes.size()]};
  return result;
}

void infer_pad(Node& node) {
  const Value& data = operand(node, 0);
  auto pads = paddings(node);
  Shape shape = data.shape();
  if (!pads) shape = declared_shape(node, 1, "pads", data.rank());
  for (size_t d = 0; pads && d < shape.size(); ++d) {
    shape[d] = shape[d] + (*pads)[d].first + (*pads)[d].second;
    if (shape[d].is_constant() && *shape[d].constant() < 0)
      fail_node(node, "dimension {} of shape {} padded by {} and {} has a negative extent", d, to_string(data.shape()),
                (*pads)[d].first.str(), (*pads)[d].second.str());
  }
  set_result(node, 0, data.dtype(), std::move(shape));
}

Rule pad_rule(const Node& node) {
  auto pads = paddings(node);
  std::vector<bool> stays;
  for (size_t d = 0; d < shape_of(node, 0).size(); ++d)
    stays.push_back(pads && (*pads)[d].first.is(0) && (*pads)[d].second.is(0));
  Rule rule = dimension_rule(node, stays);
  rule.results = {rule.operands[0]};
  // Padding with zeros is linear, and so is repeating elements; another value would be added once per rank.
  bool repeats = node.get_string("mode", "constant") != "constant";
  if (repeats || !has_operand(node, 2)) rule.partial(Reduction::sum, {0});
  return rule;
}

// --- Tile

void infer_tile(Node& node) {
  const Value& data = operand(node, 0);
  auto repeats = content_of(&operand(node, 1));
  if (!repeats) {
    set_result(node, 0, data.dtype(), declared_shape(node, 1, "repeats", data.rank()));
    return;
  }
  if (repeats->size() != data.rank())
    fail_node(node, "repeats has {} entries for an input of rank {}; give one per dimension", repeats->size(),
              data.rank());
  Shape shape;
  for (size_t d = 0; d < data.rank(); ++d) shape.push_back(data.shape()[d] * (*repeats)[d]);
  auto content = content_of(&data);
  if (content && data.rank() == 1)
    if (auto times = (*repeats)[0].constant(); times && *times * static_cast<int64_t>(content->size()) <= kMaxContent) {
      auto once = *content;
      content->clear();
      for (int64_t i = 0; i < *times; ++i) content->insert(content->end(), once.begin(), once.end());
    }
  set_result(node, 0, data.dtype(), std::move(shape), std::move(content));
}

std::string repeat_name(size_t dim) {
  return factor_name(dim) + "_repeats";
}

// A repeated dimension is repeats times the dimension; both may be split.
Rule tile_rule(const Node& node) {
  const Shape& shape = shape_of(node, 0);
  auto repeats = content_of(node.input(1));
  Rule rule = dimension_rule(node, std::vector<bool>(shape.size(), repeats.has_value()));
  auto& result = rule.results.emplace_back(rule.operands[0]);
  for (size_t d = 0; repeats && d < shape.size(); ++d)
    if (!(*repeats)[d].is(1)) result[d].insert(result[d].begin(), rule.add(repeat_name(d), (*repeats)[d]));
  return with_partials(std::move(rule), {0});
}

std::vector<Value*> localize_tile(Localizer& local) {
  auto repeats = content_of(local.node.input(1));
  if (!repeats) return local.same();
  for (size_t d = 0; d < repeats->size(); ++d)
    if (int f = local.factor(repeat_name(d)); f >= 0) (*repeats)[d] = local.extents[f];
  return local.same_with(1, *repeats);
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
  set_result(
      node, 0, data.dtype(),
      {from[0], divided(node, from[1], block * block, "the number of channels"), from[2] * block, from[3] * block});
}

void infer_space_to_depth(Node& node) {
  int64_t block = block_size(node);
  const Value& data = operand(node, 0);
  const Shape& from = data.shape();
  set_result(node, 0, data.dtype(),
             {from[0], from[1] * (block * block), divided(node, from[2], block, "the height"),
              divided(node, from[3], block, "the width")});
}

Rule blocks_rule(const Node& node, std::string_view line) {
  Rule rule = Rule::parse(line, {&shape_of(node, 0)}, {&node.output()->shape()});
  for (const char* block : {"p", "q"}) {
    rule.factor(block).size = block_size(node);
    rule.kind(block, FactorKind::whole);
  }
  return with_partials(std::move(rule), {0});
}

Rule depth_to_space_rule(const Node& node) {
  bool columns_first = node.get_string("mode", "DCR") == "CRD";
  return blocks_rule(node, columns_first ? "n (c p q) h w -> n c (h p) (w q)" : "n (p q c) h w -> n c (h p) (w q)");
}

Rule space_to_depth_rule(const Node& node) {
  return blocks_rule(node, "n c (h p) (w q) -> n (p q c) h w");
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

OpDef op(std::string_view type, void (*infer)(Node&), Rule (*rule)(const Node&), LocalizeFn localize = nullptr,
         bool pass_through = false) {
  return {.type = type, .domain = "", .infer = infer, .rule = rule, .localize = localize, .pass_through = pass_through};
}

}  // namespace

std::vector<OpDef> movement_ops() {
  return {
      op("Transpose", infer_transpose, transpose_rule, nullptr, true),
      op("Concat", infer_concat, concat_rule),
      op("Split", infer_split, split_rule, localize_split, true),
      op("Slice", infer_slice, slice_rule),
      op("Pad", infer_pad, pad_rule),
      op("Tile", infer_tile, tile_rule, localize_tile),
      op("DepthToSpace", infer_depth_to_space, depth_to_space_rule),
      op("SpaceToDepth", infer_space_to_depth, space_to_depth_rule),
      op("Trilu", infer_trilu, trilu_rule, localize_trilu),
  };
}

}  // namespace tessera::ops

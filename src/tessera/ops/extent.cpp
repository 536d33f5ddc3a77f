#include <algorithm>
#include <numeric>

#include "tessera/base/counted.h"
#include "tessera/ops/examples/examples.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/pads.h"
#include "tessera/ops/library/slice.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

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
  for (size_t d = 0; d < stays.size(); ++d)
    if (ranges[d] && !stays[d]) {
      const int64_t step = ranges[d]->step;
      rule.operands[0][d] = rule.results[0][d] = {
          rule.add_halo(factor_name(d), node.output()->shape()[d], {step, 1, ranges[d]->start, ranges[d]->start})};
    }
  return moving(std::move(rule), {0});
}

// Each rank takes its elements of what its results read, which begins and ends with one of them.
std::vector<Value*> localize_slice(Localizer& local) {
  const auto ranges = slice_ranges(local.node);
  std::vector<Expr> starts, ends;
  std::vector<int64_t> axes, steps;
  bool widened = false;
  for (size_t d = 0; d < ranges.size(); ++d) {
    if (!ranges[d] || ranges[d]->covers(shape_of(local.node, 0)[d])) continue;
    const SliceRange& range = *ranges[d];
    axes.push_back(static_cast<int64_t>(d));
    steps.push_back(range.step);
    if (!local.is_split_halo(0, d)) {
      starts.push_back(range.start);
      const Expr end = range.start + range.count * range.step, extent = shape_of(local.node, 0)[d];
      ends.push_back(end - min(1, max(0, 0 - end)) * (extent + 1));  // a negative number would count from the end
      continue;
    }
    local.inputs[0] = local.widen(local.inputs[0], 0, d, nullptr).value;
    const Expr extent = local.inputs[0]->shape()[d];
    starts.push_back(range.step > 0 ? Expr(0) : extent - 1);
    ends.push_back(range.step > 0 ? extent : -1 - extent);
    widened = true;
  }
  if (!widened) return local.same();
  const std::string name = local.node.outputs[0]->name;
  local.inputs.resize(1);
  if (std::all_of(steps.begin(), steps.end(), [](int64_t step) { return step == 1; }) &&
      *local.inputs[0]->type.shape == *local.outputs[0].shape)
    return {local.emit("Identity", local.inputs, local.outputs[0])};
  local.inputs.push_back(local.graph.add_expression(name + ".start", starts));
  local.inputs.push_back(local.graph.add_expression(name + ".end", ends));
  local.inputs.push_back(local.graph.constant_int64(axes));
  local.inputs.push_back(local.graph.constant_int64(steps));
  return local.same();
}

// --- Pad

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
    shape[d] = extent_of_part(shape[d]);
  }
  set_result(node, 0, data.dtype(), std::move(shape));
}

// How a padded dimension is read; nullopt if what a rank's results read may not be one interval of it.
std::optional<Window> pad_window(const Node& node, size_t d, const std::pair<Expr, Expr>& pads) {
  const std::string mode = node.get_string("mode", "constant");
  Window window{1, 1, 0 - pads.first, 0 - pads.first};
  if (mode == "constant") return window;
  const auto before = pads.first.constant(), after = pads.second.constant();
  if (!before || !after || *before < 0 || *after < 0) return std::nullopt;
  if (mode == "edge") {
    window.beyond = Window::Beyond::nearest;
    return window;
  }
  const auto extent = shape_of(node, 0)[d].constant();
  if (mode != "reflect" || !extent || std::max(*before, *after) >= *extent) return std::nullopt;
  window.beyond = Window::Beyond::mirrored;
  return window;
}

Rule pad_rule(const Node& node) {
  auto pads = paddings(node);
  std::vector<bool> stays;
  for (size_t d = 0; d < shape_of(node, 0).size(); ++d)
    stays.push_back(pads && (*pads)[d].first.is(0) && (*pads)[d].second.is(0));
  Rule rule = dimension_rule(node, stays);
  rule.results = {rule.operands[0]};
  for (size_t d = 0; pads && d < stays.size(); ++d)
    if (const auto window = stays[d] ? std::nullopt : pad_window(node, d, (*pads)[d]))
      rule.operands[0][d] = rule.results[0][d] = {rule.add_halo(factor_name(d), node.output()->shape()[d], *window)};
  // Padding with zeros is linear, and so is repeating elements; another value would be added once per rank.
  bool repeats = node.get_string("mode", "constant") != "constant";
  if (repeats || !has_operand(node, 2)) rule.partial(Reduction::sum, {0});
  return rule;
}

// Each rank pads what it reads of the operand by the padding that it reads. Where padding consists of elements, a rank
// reads from there to the nearest end of the operand, pads that, and takes its results out of it.
std::vector<Value*> localize_pad(Localizer& local) {
  auto pads = paddings(local.node);
  const bool of_elements = local.node.get_string("mode", "constant") != "constant";
  const Shape wanted = *local.outputs[0].shape;
  std::vector<Expr> starts, ends;
  std::vector<int64_t> axes;
  bool widened = false, cut = false;
  for (size_t d = 0; pads && d < pads->size(); ++d) {
    if (!local.is_split_halo(0, d)) continue;
    const Localizer::Widened part = local.widen(local.inputs[0], 0, d, nullptr);
    local.inputs[0] = part.value;
    widened = true;
    if (!of_elements) {
      (*pads)[d] = {part.before, part.after};
      continue;
    }
    // This rank's results stand for elements first … end - 1 of the padded operand, counted from the operand's first.
    const Expr first = local.offsets[local.rule.operands[0][d].front()] - (*pads)[d].first, end = first + wanted[d];
    const Expr any = min(1, wanted[d]);
    const Expr before = any * max(0, 0 - first), after = any * max(0, end - shape_of(local.node, 0)[d]);
    (*pads)[d] = {before, after};
    (*local.outputs[0].shape)[d] = before + part.value->shape()[d] + after;
    starts.push_back(any * (first - part.begin + before));
    ends.push_back(starts.back() + wanted[d]);
    axes.push_back(static_cast<int64_t>(d));
    cut |= (*local.outputs[0].shape)[d] != wanted[d];
  }
  if (!widened) return local.same();
  std::vector<Expr> content;
  for (const auto& [before, after] : *pads) content.push_back(before);
  for (const auto& [before, after] : *pads) content.push_back(after);
  if (local.inputs.size() > 3) local.inputs.resize(3);  // all dimensions are named in order
  std::vector<Value*> results = local.same_with(1, std::move(content));
  return cut ? std::vector{sliced(local, results[0], starts, ends, axes, wanted)} : results;
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
    fail_node(node, "repeats has {} for an input of rank {}; give one per dimension",
              counted(repeats->size(), "entry", "entries"), data.rank());
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
  return moving(std::move(rule), {0});
}

std::vector<Value*> localize_tile(Localizer& local) {
  auto repeats = content_of(local.node.input(1));
  if (!repeats) return local.same();
  for (size_t d = 0; d < repeats->size(); ++d)
    if (int f = local.factor(repeat_name(d)); f >= 0) (*repeats)[d] = local.extents[f];
  return local.same_with(1, *repeats);
}

}  // namespace

std::optional<std::vector<std::pair<Expr, Expr>>> paddings(const Node& node) {
  size_t rank = shape_of(node, 0).size();
  auto pads = content_of(&operand(node, 1));
  if (!pads) return std::nullopt;
  std::vector<size_t> axes(rank);
  std::iota(axes.begin(), axes.end(), size_t{0});
  if (auto given = axes_operand(node, 3, rank)) axes = *given;
  if (pads->size() != 2 * axes.size())
    fail_node(node, "pads has {} for {}; give one before and one after each", counted(pads->size(), "entry", "entries"),
              counted(axes.size(), "dimension"));
  std::vector<std::pair<Expr, Expr>> result(rank);
  for (size_t i = 0; i < axes.size(); ++i) result[axes[i]] = {(*pads)[i], (*pads)[i + axes.size()]};
  return result;
}

std::vector<OpDef> extent_ops() {
  return {
      {.type = "Slice",
       .infer = infer_slice,
       .rule = slice_rule,
       .localize = localize_slice,
       .gradient = slice_gradient,
       .values = {1, 2, 3, 4},
       .moves = Moves::part,
       .layout_step = true,
       .examples = slice_examples},
      {.type = "Pad",
       .infer = infer_pad,
       .rule = pad_rule,
       .localize = localize_pad,
       .gradient = pad_gradient,
       .values = {1, 3},
       .moves = Moves::some,
       .examples = pad_examples},
      {.type = "Tile",
       .infer = infer_tile,
       .rule = tile_rule,
       .localize = localize_tile,
       .gradient = tile_gradient,
       .values = {1},
       .moves = Moves::part,
       .examples = tile_examples},
  };
}

}  // namespace tessera::ops

#include <algorithm>

#include "tessera/ops/examples/examples.h"
#include "tessera/ops/fold.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/finite.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/node_builder.h"
#include "tessera/ops/library/require.h"
#include "tessera/ops/library/table.h"
#include "tessera/ops/local/form.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

size_t axis_attribute(const Node& node, size_t rank, int64_t otherwise = 0) {
  return normalize_axis(node, node.get_int("axis", otherwise), rank);
}

void require_index_type(const Node& node, size_t index) {
  DType dtype = operand(node, index).dtype();
  if (dtype != DType::int64 && dtype != DType::int32)
    fail_node(node, "indices must be int64 or int32, not {}; Cast them", name_of(dtype));
}

bool is_inside(const Expr& index, int64_t size) {
  const auto low = index.lower_bound(), high = index.upper_bound();
  return low && *low >= 0 && high && *high < size;
}

// The elements that a Gather takes from known contents by known indices.
std::optional<std::vector<Expr>> gathered_content(const Node& node) {
  auto table = content_of(node.input(0)), indices = content_of(node.input(1));
  if (!table || !indices || node.input(0)->rank() != 1) return std::nullopt;
  std::vector<Expr> elements;
  auto size = static_cast<int64_t>(table->size());
  for (const Expr& index : *indices) {
    auto i = index.constant();
    if (!i && is_inside(index, size)) {
      auto element = unless_overflowing([&] { return std::optional(element_at(*table, index)); });
      if (!element) return std::nullopt;
      elements.push_back(std::move(*element));
      continue;
    }
    if (!i) return std::nullopt;
    if (*i < -size || *i >= size) fail_node(node, "index {} is outside the {} elements that it gathers from", *i, size);
    elements.push_back((*table)[static_cast<size_t>(*i < 0 ? *i + size : *i)]);
  }
  return elements;
}

void infer_gather(Node& node) {
  const Shape &table = shape_of(node, 0), &indices = shape_of(node, 1);
  require_index_type(node, 1);
  size_t axis = axis_attribute(node, table.size());
  Shape shape(table.begin(), table.begin() + static_cast<ptrdiff_t>(axis));
  shape.insert(shape.end(), indices.begin(), indices.end());
  shape.insert(shape.end(), table.begin() + static_cast<ptrdiff_t>(axis) + 1, table.end());
  set_result(node, 0, node.input(0)->dtype(), std::move(shape),
             node.domain.empty() ? gathered_content(node) : std::nullopt);
}

// How the indexed dimension of a table is split. A rank that does not hold an index gives zeros, and the sum is the
// answer; there is no such sum of bools, nor of floats of 8 bits and less. Our own operators look up in a shard
// already.
bool is_summable(DType dtype) {
  return bits_of(dtype) >= (is_float(dtype) ? 16 : 8) && (is_float(dtype) || is_integer(dtype));
}
FactorKind indexed_kind(const Node& node) {
  return is_summable(node.input(0)->dtype()) && node.domain.empty() ? FactorKind::lookup : FactorKind::whole;
}

// How a dimension is split, beside the indexed one, in which data and indices differ: the local form takes the part of
// what is whole that lies beside the part of the other.
FactorKind beside_kind(const Node& node) {
  return node.domain.empty() ? FactorKind::index : FactorKind::whole;
}

// "v h, b s -> b s h | v: lookup". A line is cut between bytes only.
Rule gather_rule(const Node& node) {
  const Value &table = *node.input(0), &indices = *node.input(1);
  size_t axis = axis_attribute(node, table.rank());
  Rule rule = blank_rule(node);
  const Shape& extents = table.shape();
  auto after_axis = extents.begin() + static_cast<ptrdiff_t>(axis) + 1;
  auto before = add_dims(rule, Shape(extents.begin(), after_axis - 1), "aceg");
  auto looked_up = rule.add("v", extents[axis], indexed_kind(node));
  const size_t first_after = rule.factors.size();
  auto after = add_dims(rule, Shape(after_axis, extents.end()), "hdfij");
  for (size_t d = axis + 1; d < extents.size(); ++d)
    if (!fills_bytes(table, static_cast<int64_t>(d))) rule.factors[first_after + d - axis - 1].kind = FactorKind::whole;
  auto index_dims = add_dims(rule, indices.shape(), "bstuw");
  auto join = [](std::vector<DimFactors>& to, const std::vector<DimFactors>& dims) {
    to.insert(to.end(), dims.begin(), dims.end());
  };
  rule.operands[0] = before;
  rule.operands[0].push_back({looked_up});
  join(rule.operands[0], after);
  rule.operands[1] = index_dims;
  rule.results[0] = before;
  join(rule.results[0], index_dims);
  join(rule.results[0], after);
  return rule.partial(Reduction::sum, {0}).partial(Reduction::max, {0}).partial(Reduction::min, {0});
}

// Where fewer indices than data are split along a dimension, or data beside fewer indices: slices the others.
void take_beside(Localizer& local) {
  const Node& node = local.node;
  NodeBuilder build(local.graph, node.outputs[0]->name);
  const bool writes = node.is("ScatterElements");
  for (size_t d = 0; d < node.input(0)->rank(); ++d) {
    const int along = local.rule.results[0][d].front();
    if (local.rule.factors[along].kind != FactorKind::index || !local.split[along]) continue;
    const Expr begin = local.offsets[along], end = begin + local.extents[along];
    const auto axis = static_cast<int64_t>(d);
    const Expr& indices = node.input(1)->shape()[d];
    if (!writes) local.inputs[0] = build.slice(local.inputs[0], axis, begin, end);
    for (size_t t : {1, 2})
      if (writes) local.inputs[t] = build.slice(local.inputs[t], axis, min(begin, indices), min(end, indices));
  }
}

// Split along the indexed dimension: each rank reads or writes what falls into its part. Where it reads nothing it
// gives zeros. The whole extent goes along, so that indices from its end and indices out of its range are what they are
// on one device.
std::vector<Value*> localize_indexed(Localizer& local) {
  if (!local.node.is("Gather")) take_beside(local);
  const Shape& whole = local.node.input(0)->shape();
  const size_t axis = axis_attribute(local.node, whole.size());
  const int along = local.rule.operands[0][axis].front();
  if (!local.split[along]) return local.same();
  std::vector<Value*> operands = local.inputs;
  operands.push_back(local.graph.add_expression(operands[0]->name + ".offset", {local.offsets[along]}, true));
  operands.push_back(local.graph.add_expression(operands[0]->name + ".rows", {whole[axis]}, true));
  std::vector<Attribute> attributes = {{"axis", static_cast<int64_t>(axis)}};
  if (local.node.is("ScatterElements")) attributes.push_back({"reduction", local.node.get_string("reduction", "none")});
  return {local.emit(local.node.op_type + "Shard", std::move(operands), local.outputs[0], std::move(attributes),
                     "tessera")};
}

// GatherND: data [batch…, indexed…, rest…], indices [batch…, points…, k], result [batch…, points…, rest…].
struct GatherNDDims {
  size_t batch, points, indexed;  ///< counts of dimensions
};

GatherNDDims gather_nd_dims(const Node& node) {
  const Shape &data = shape_of(node, 0), &indices = shape_of(node, 1);
  int64_t batch = node.get_int("batch_dims", 0);
  if (batch < 0 || batch >= static_cast<int64_t>(std::min(data.size(), indices.size())))
    fail_node(node, "batch_dims is {}; it must be at least 0 and less than the ranks of {} and {}", batch,
              to_string(data), to_string(indices));
  auto indexed = indices.back().constant();
  if (!indexed || *indexed < 1 || batch + *indexed > static_cast<int64_t>(data.size()))
    fail_node(node,
              "the last extent of the indices {} says how many dimensions of {} are indexed; it must be a number from "
              "1 to the rank",
              to_string(indices), to_string(data));
  auto outer = static_cast<size_t>(batch);
  return {outer, indices.size() - 1 - outer, static_cast<size_t>(*indexed)};
}

void infer_gather_nd(Node& node) {
  GatherNDDims dims = gather_nd_dims(node);
  require_index_type(node, 1);
  const Shape &data = node.input(0)->shape(), &indices = node.input(1)->shape();
  Shape shape(indices.begin(), indices.end() - 1);
  for (size_t d = 0; d < dims.batch; ++d)
    shape[d] = require_equal(node, data[d], indices[d], "a batch dimension of the data", "that of the indices");
  shape.insert(shape.end(), data.begin() + static_cast<ptrdiff_t>(dims.batch + dims.indexed), data.end());
  set_result(node, 0, node.input(0)->dtype(), std::move(shape));
}

Rule gather_nd_rule(const Node& node) {
  GatherNDDims dims = gather_nd_dims(node);
  Rule rule = blank_rule(node);
  rule.results[0] = add_dims(rule, node.output()->shape(), "abcdefgh");
  for (size_t d = 0; d < dims.batch + dims.points; ++d) rule.operands[1][d] = rule.results[0][d];
  for (size_t d = 0; d < dims.batch; ++d) rule.operands[0][d] = rule.results[0][d];
  const Shape& data = node.input(0)->shape();
  for (size_t d = dims.batch; d < dims.batch + dims.indexed; ++d)
    rule.operands[0][d] =
        add_dims(rule, {data[d]}, std::string_view("vwxyz").substr((d - dims.batch) % 5, 1), indexed_kind(node))[0];
  for (size_t d = dims.batch + dims.indexed; d < rule.operands[0].size(); ++d)
    rule.operands[0][d] = rule.results[0][d - dims.indexed + dims.points];
  return rule.partial(Reduction::sum, {0}).partial(Reduction::max, {0}).partial(Reduction::min, {0});
}

/// The first index and the whole extent of each indexed dimension of a shard, from dimension `first` of operand 0 on,
/// as two more operands; false if none is split.
bool add_indexed_parts(Localizer& local, size_t first, size_t count, std::vector<Value*>& operands) {
  std::vector<Expr> offsets, extents;
  bool split = false;
  for (size_t d = first; d < first + count; ++d) {
    const int along = local.rule.operands[0][d].front();
    split |= local.split[along];
    offsets.push_back(local.offsets[along]);
    extents.push_back(local.node.input(0)->shape()[d]);
  }
  if (!split) return false;
  const std::string name = operands[0]->name;
  operands.push_back(local.graph.add_expression(name + ".offsets", std::move(offsets)));
  operands.push_back(local.graph.add_expression(name + ".extents", std::move(extents)));
  return true;
}

std::vector<Value*> localize_gather_nd(Localizer& local) {
  const GatherNDDims dims = gather_nd_dims(local.node);
  std::vector<Value*> operands = local.inputs;
  if (!add_indexed_parts(local, dims.batch, dims.indexed, operands)) return local.same();
  return {local.emit("GatherNDShard", std::move(operands), local.outputs[0],
                     {{"batch_dims", static_cast<int64_t>(dims.batch)}}, "tessera")};
}

void require_same_rank(const Node& node, size_t operand) {
  if (node.input(operand)->rank() != node.input(0)->rank())
    fail_node(node, "the indices {} must have the rank of the data {}", to_string(node.input(operand)->shape()),
              to_string(node.input(0)->shape()));
}

void infer_gather_elements(Node& node) {
  const Shape &data = shape_of(node, 0), &indices = shape_of(node, 1);
  require_index_type(node, 1);
  require_same_rank(node, 1);
  axis_attribute(node, data.size());
  set_result(node, 0, node.input(0)->dtype(), indices);
}

Rule gather_elements_rule(const Node& node) {
  const Shape &data = node.input(0)->shape(), &indices = node.input(1)->shape();
  size_t axis = axis_attribute(node, data.size());
  Rule rule = blank_rule(node);
  rule.operands[1] = rule.results[0] = add_dims(rule, indices, "abcdefgh");
  for (size_t d = 0; d < data.size(); ++d) {
    if (d == axis) {
      rule.operands[0][d] = {rule.add("v", data[d], indexed_kind(node))};
      continue;
    }
    // Fewer indices than data along d: a part of the indices reads a part of the data, which splits elsewhere.
    if (data[d] == indices[d])
      rule.operands[0][d] = rule.operands[1][d];
    else
      rule.factors[d].kind = beside_kind(node);
  }
  return rule.partial(Reduction::sum, {0}).partial(Reduction::max, {0}).partial(Reduction::min, {0});
}

void infer_scatter(Node& node) {
  const Shape& data = shape_of(node, 0);
  require_index_type(node, 1);
  std::string reduction = node.get_string("reduction", "none");
  bool known = false;
  for (std::string_view name : {"none", "add", "mul", "max", "min"}) known |= reduction == name;
  if (!known) fail_node(node, "reduction is '{}'; it may be none, add, mul, max or min", reduction);
  DType dtype = require_same_dtype(node, {0, 2});
  if (node.op_type.starts_with("ScatterElements")) {
    require_same_rank(node, 1);
    require_same_rank(node, 2);
    axis_attribute(node, data.size());
    for (size_t d = 0; d < data.size(); ++d)
      require_equal(node, node.input(1)->shape()[d], node.input(2)->shape()[d], "an extent of the indices",
                    "that of the updates");
  } else {
    const Shape &indices = node.input(1)->shape(), &updates = node.input(2)->shape();
    auto indexed = indices.empty() ? std::nullopt : indices.back().constant();
    if (!indexed || *indexed < 0 || *indexed > static_cast<int64_t>(data.size()) ||
        updates.size() + static_cast<size_t>(*indexed) + 1 != indices.size() + data.size())
      fail_node(node, "indices {} and updates {} do not address data {}; updates are [points…, rest of the data…]",
                to_string(indices), to_string(updates), to_string(data));
  }
  set_result(node, 0, dtype, data);
}

// How ranks that each write some of the updates make the whole; nullopt: they cannot.
std::optional<Reduction> reduction_of_updates(const Node& node) {
  const std::string reduction = node.get_string("reduction", "none");
  if (!node.domain.empty() || !is_summable(node.input(0)->dtype())) return std::nullopt;
  if (reduction == "add") return Reduction::sum;
  if (reduction == "max") return Reduction::max;
  if (reduction == "min") return Reduction::min;
  return std::nullopt;
}

// What is indexed is written in parts; dimensions below or beside it pass. Ranks may write some of the updates each.
Rule scatter_rule(const Node& node) {
  const Shape &data = node.input(0)->shape(), &indices = node.input(1)->shape(), &updates = node.input(2)->shape();
  const FactorKind target = node.domain.empty() ? FactorKind::target : FactorKind::whole;
  Rule rule = blank_rule(node);
  rule.operands[0] = rule.results[0] = add_dims(rule, data, "abcdefgh");
  const auto combined = reduction_of_updates(node);
  const auto share = [&](size_t dim) {
    if (!combined) return;
    const int factor =
        rule.add(fmt::format("n{}", dim == 0 ? "" : std::to_string(dim)), indices[dim], FactorKind::update, *combined);
    rule.operands[1][dim] = rule.operands[2][dim] = {factor};
  };
  if (node.op_type.starts_with("ScatterElements")) {
    size_t axis = axis_attribute(node, data.size());
    share(axis);
    for (size_t d = 0; d < data.size(); ++d) {
      if (d == axis)
        rule.factors[d].kind = target;
      else if (data[d] == indices[d])
        rule.operands[1][d] = rule.operands[2][d] = rule.operands[0][d];
      else
        rule.factors[d].kind = beside_kind(node);
    }
  } else {
    auto indexed = static_cast<size_t>(indices.back().constant().value());
    for (size_t d = 0; d < data.size(); ++d) {
      if (d < indexed)
        rule.factors[d].kind = target;
      else
        rule.operands[2][updates.size() - data.size() + d] = rule.operands[0][d];
    }
    for (size_t d = 0; d + 1 < indices.size(); ++d) share(d);
  }
  std::string reduction = node.get_string("reduction", "none");
  if (reduction == "none" || reduction == "add") {
    rule.partial(Reduction::sum, {0, 2});
    if (are_zeros(node.input(0))) rule.partial(Reduction::sum, {2});  // zeros are a term of any sum
  }
  return rule;
}

// Where ranks add some of the updates each, one of them adds these to the data, the others to zeros. The sums of 16-bit
// floats are float32.
void take_updates(Localizer& local) {
  for (size_t f = 0; f < local.rule.factors.size(); ++f) {
    const Factor& factor = local.rule.factors[f];
    const bool adds = factor.kind == FactorKind::update && factor.reduction == Reduction::sum && local.split[f];
    if (adds && !are_zeros(local.node.input(0)))
      local.inputs[0] = local.on_first_shard(local.inputs[0], static_cast<int>(f));
  }
  NodeBuilder build(local.graph, local.node.outputs[0]->name);
  for (size_t i : {0, 2}) local.inputs[i] = build.cast(local.inputs[i], local.outputs[0].dtype);
}

std::vector<Value*> localize_scatter_elements(Localizer& local) {
  take_updates(local);
  return localize_indexed(local);
}

std::vector<Value*> localize_scatter_nd(Localizer& local) {
  take_updates(local);
  const auto indexed = static_cast<size_t>(local.node.input(1)->shape().back().constant().value());
  std::vector<Value*> operands = local.inputs;
  if (!add_indexed_parts(local, 0, indexed, operands)) return local.same();
  return {local.emit("ScatterNDShard", std::move(operands), local.outputs[0],
                     {{"reduction", local.node.get_string("reduction", "none")}}, "tessera")};
}

// The one element of a small integer operand.
Expr single_element(const Node& node, size_t index, std::string_view what) {
  auto content = content_operand(node, index, what);
  if (content.size() != 1) fail_node(node, "its {} must be one number, not {}", what, content.size());
  return content[0];
}

void infer_one_hot(Node& node) {
  const Shape& indices = shape_of(node, 0);
  // The depth may have any numeric type.
  const Value& given = operand(node, 1);
  auto whole = cast_content(given, DType::int64);
  Expr depth = whole && whole->size() == 1 ? whole->front() : single_element(node, 1, "depth");
  require_equal(node, require_rank(node, 2, "the values", 1)[0], 2, "the number of values", "off and on");
  size_t axis = axis_attribute(node, indices.size() + 1, -1);
  Shape shape = indices;
  shape.insert(shape.begin() + static_cast<ptrdiff_t>(axis), depth);
  set_result(node, 0, node.input(2)->dtype(), std::move(shape));
}

// Each rank points into its part of the depth. Fractions, and what int64 does not hold, would not stay as they are.
Rule one_hot_rule(const Node& node) {
  const DType indices = node.input(0)->dtype();
  const bool shifts = is_integer(indices) && indices != DType::uint64;
  Rule rule = blank_rule(node);
  rule.operands[0] = rule.results[0] = add_dims(rule, node.input(0)->shape(), "abcdefgh");
  size_t axis = axis_attribute(node, rule.results[0].size() + 1, -1);
  const Expr& depth = node.output()->shape()[axis];
  const int along = rule.add("v", depth, shifts ? FactorKind::index : FactorKind::whole);
  rule.results[0].insert(rule.results[0].begin() + static_cast<ptrdiff_t>(axis), DimFactors{along});
  return rule;
}

// An index of another part becomes this part's extent, which points nowhere.
std::vector<Value*> localize_one_hot(Localizer& local) {
  const size_t rank = local.node.input(0)->rank() + 1, axis = axis_attribute(local.node, rank, -1);
  const int along = local.rule.results[0][axis].front();
  if (!local.split[along]) return local.same();
  NodeBuilder build(local.graph, local.node.outputs[0]->name);
  const auto scalar = [&](const Expr& value) { return build.scalar(DType::int64, value); };
  Value* given = build.cast(local.inputs[0], DType::int64);
  Value* counted =
      build.where(build.less(given, 0), build.add(given, scalar(local.node.output()->shape()[axis])), given);
  Value* here = build.sub(counted, scalar(local.offsets[along]));
  Value* extent = scalar(local.extents[along]);
  Value* indices = build.where(build.less(here, 0), extent, here);
  return {local.emit("OneHot", {indices, extent, local.inputs[2]}, local.outputs[0],
                     {{"axis", static_cast<int64_t>(axis)}})};
}

void infer_top_k(Node& node) {
  Shape shape = shape_of(node, 0);
  size_t axis = axis_attribute(node, shape.size(), -1);
  Expr k = single_element(node, 1, "K");
  auto extent = shape[axis].constant(), wanted = k.constant();
  if (wanted && (*wanted < 0 || (extent && *wanted > *extent)))
    fail_node(node, "K is {}, but dimension {} has {} elements", *wanted, axis, shape[axis].str());
  shape[axis] = k;
  if (node.output(0)) set_result(node, 0, node.input(0)->dtype(), shape);
  if (node.output(1)) set_result(node, 1, DType::int64, shape);
}

Rule top_k_rule(const Node& node) {
  const size_t axis = axis_attribute(node, node.input(0)->rank(), -1);
  Rule rule = rule_along(node, {static_cast<int>(axis)}, FactorKind::top);
  for (size_t r = 0; r < node.outputs.size(); ++r)
    if (node.outputs[r]) rule.results[r][axis].clear();
  return rule;
}

Indices axis_indices(const Node& node) {
  const Shape& table = shape_of(node, 0);
  return {.extents = {table.at(axis_attribute(node, table.size()))}};
}

// Each component of an index is below the extent of its dimension, after the batch dimensions.
Indices point_indices(const Node& node) {
  const Shape &table = shape_of(node, 0), &points = shape_of(node, 1);
  const auto batch = static_cast<size_t>(node.get_int("batch_dims", 0));
  const auto indexed = points.empty() ? 0 : static_cast<size_t>(points.back().constant().value_or(0));
  Indices indices{.components = true};
  for (size_t d = batch; d < batch + indexed && d < table.size(); ++d) indices.extents.push_back(table[d]);
  return indices;
}

Indices one_hot_indices(const Node& node) {
  Indices indices{.operand = 0};
  const size_t rank = shape_of(node, 0).size() + 1;
  if (const Value* result = node.output(); result && result->has_shape() && result->rank() == rank)
    indices.extents = {result->shape()[axis_attribute(node, rank, -1)]};
  return indices;
}

}  // namespace

std::vector<OpDef> indexing_ops() {
  return {
      {.type = "Gather",
       .infer = infer_gather,
       .rule = gather_rule,
       .localize = localize_indexed,
       .gradient = gather_gradient,
       .moves = Moves::part,
       .table = 0,
       .indices = axis_indices,
       .examples = gather_examples},
      {.type = "GatherShard",
       .domain = "tessera",
       .infer = infer_gather,
       .rule = gather_rule,
       .no_gradient = kMadeByPartitioner},
      {.type = "GatherND",
       .infer = infer_gather_nd,
       .rule = gather_nd_rule,
       .localize = localize_gather_nd,
       .gradient = gather_nd_gradient,
       .moves = Moves::part,
       .table = 0,
       .indices = point_indices,
       .examples = gather_nd_examples},
      {.type = "GatherNDShard",
       .domain = "tessera",
       .infer = infer_gather_nd,
       .rule = gather_nd_rule,
       .no_gradient = kMadeByPartitioner},
      {.type = "GatherElements",
       .infer = infer_gather_elements,
       .rule = gather_elements_rule,
       .localize = localize_indexed,
       .gradient = gather_elements_gradient,
       .moves = Moves::part,
       .table = 0,
       .indices = axis_indices,
       .examples = gather_elements_examples},
      {.type = "GatherElementsShard",
       .domain = "tessera",
       .infer = infer_gather_elements,
       .rule = gather_elements_rule,
       .no_gradient = kMadeByPartitioner},
      {.type = "ScatterND",
       .infer = infer_scatter,
       .rule = scatter_rule,
       .localize = localize_scatter_nd,
       .gradient = scatter_nd_gradient,
       .wide_sums = true,
       .moves = Moves::some,
       .indices = point_indices,
       .examples = scatter_nd_examples},
      {.type = "ScatterNDShard",
       .domain = "tessera",
       .infer = infer_scatter,
       .rule = scatter_rule,
       .no_gradient = kMadeByPartitioner},
      {.type = "ScatterElements",
       .infer = infer_scatter,
       .rule = scatter_rule,
       .localize = localize_scatter_elements,
       .gradient = scatter_elements_gradient,
       .wide_sums = true,
       .moves = Moves::some,
       .indices = axis_indices,
       .examples = scatter_elements_examples},
      {.type = "ScatterElementsShard",
       .domain = "tessera",
       .infer = infer_scatter,
       .rule = scatter_rule,
       .no_gradient = kMadeByPartitioner},
      {.type = "OneHot",
       .infer = infer_one_hot,
       .rule = one_hot_rule,
       .localize = localize_one_hot,
       .no_gradient = "its two values never train",
       .untrained = {2},
       .values = {1},
       .moves = Moves::some,
       .indices = one_hot_indices,
       .examples = one_hot_examples},
      {.type = "TopK",
       .infer = infer_top_k,
       .rule = top_k_rule,
       .localize = localize_top_k,
       .gradient = top_k_gradient,
       .values = {1},
       .examples = top_k_examples},
  };
}

}  // namespace tessera::ops

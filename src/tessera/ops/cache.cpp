#include "tessera/ops/examples/examples.h"
#include "tessera/ops/gradients/gradient.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/node_builder.h"
#include "tessera/ops/library/require.h"
#include "tessera/ops/registry.h"

// TensorScatter writes an update's rows into a cache. Where ranks have parts of the cache, an operator of our own
// domain does so on each:
//
//   TensorScatterShard (cache, update, write_indices?, offset, rows) → the cache
//
// Operands and attributes are TensorScatter's, of which `cache` is a part that begins at row `offset` of all `rows`
// (int64 scalars). Rows that belong elsewhere are left out.
namespace tessera::ops {
namespace {

enum Operand : size_t { kCache, kUpdate, kFirst, kOffset, kAllRows };

size_t written_axis(const Node& node) {
  const size_t axis = normalize_axis(node, node.get_int("axis", -2), shape_of(node, kCache).size());
  if (axis == 0) fail_node(node, "its axis is the batch's axis; it must be another");
  return axis;
}

void infer_tensor_scatter(Node& node) {
  const Shape& cache = shape_of(node, kCache);
  const Shape& update = require_rank(node, kUpdate, "the update", cache.size());
  const size_t axis = written_axis(node);
  const DType dtype = require_same_dtype(node, {kCache, kUpdate});
  const std::string mode = node.get_string("mode", "linear");
  if (mode != "linear" && mode != "circular") fail_node(node, "its mode '{}' must be linear or circular", mode);
  for (size_t d = 0; d < cache.size(); ++d)
    if (d != axis)
      require_equal(node, update[d], cache[d], fmt::format("dimension {} of the update", d), "that of the cache");
  if (has_operand(node, kFirst)) {
    const Shape& first = require_rank(node, kFirst, "write_indices", 1);
    require_equal(node, first[0], cache[0], "the number of write_indices", "the cache's batch");
    if (node.input(kFirst)->dtype() != DType::int64)
      fail_node(node, "write_indices are {}; they must be int64", name_of(node.input(kFirst)->dtype()));
  }
  if (!node.domain.empty())
    for (size_t i : {kOffset, kAllRows})
      if (operand(node, i).dtype() != DType::int64)
        fail_node(node, "operand {} is {}; it must be int64", i, name_of(operand(node, i).dtype()));
  set_result(node, 0, dtype, cache);
}

// "a b t d, a b u d, a -> a b t d | t: target, u: whole": each rank writes what falls into its part, and what lies
// beside the axis passes.
Rule tensor_scatter_rule(const Node& node) {
  const Shape &cache = shape_of(node, kCache), &update = shape_of(node, kUpdate);
  const size_t axis = written_axis(node);
  const FactorKind written = node.domain.empty() ? FactorKind::target : FactorKind::whole;
  Rule rule = blank_rule(node);
  for (size_t d = 0; d < cache.size(); ++d) {
    const int factor = rule.add(factor_name(d), cache[d], d == axis ? written : FactorKind::pass);
    rule.operands[kCache][d] = rule.results[0][d] = {factor};
    rule.operands[kUpdate][d] = {d == axis ? rule.add("u", update[d], FactorKind::whole) : factor};
  }
  if (has_operand(node, kFirst)) rule.operands[kFirst][0] = rule.operands[kCache][0];
  return rule;
}

// The permutation that puts the written axis behind the batch, and the one back.
struct RowsInFront {
  std::vector<int64_t> front, back;

  RowsInFront(size_t axis, size_t rank) : front{0, static_cast<int64_t>(axis)}, back(rank) {
    for (size_t d = 1; d < rank; ++d)
      if (d != axis) front.push_back(static_cast<int64_t>(d));
    for (size_t d = 0; d < rank; ++d) back[static_cast<size_t>(front[d])] = static_cast<int64_t>(d);
  }
};

std::vector<Value*> localize_tensor_scatter(Localizer& local) {
  const Node& node = local.node;
  const size_t axis = written_axis(node);
  const int along = local.rule.operands[kCache][axis].front();
  if (!local.split[along]) return local.same();
  std::vector<Value*> operands = local.inputs;
  operands.resize(kOffset);
  operands.push_back(local.graph.add_expression(operands[kCache]->name + ".offset", {local.offsets[along]}, true));
  operands.push_back(
      local.graph.add_expression(operands[kCache]->name + ".rows", {node.input(kCache)->shape()[axis]}, true));
  return {local.emit("TensorScatterShard", std::move(operands), local.outputs[0],
                     {{"axis", static_cast<int64_t>(axis)}, {"mode", node.get_string("mode", "linear")}}, "tessera")};
}

// Each row of the cache takes the last of the update's that goes there, or, if none does, what it has.
std::vector<Value*> tensor_scatter_shard_body(NodeBuilder& b, const Node& node) {
  const size_t axis = written_axis(node);
  const Shape &cache = shape_of(node, kCache), &update = shape_of(node, kUpdate);
  const Expr &batch = cache[0], &here = cache[axis], &count = update[axis];
  Value* row = b.add(b.reshape(b.range(here), {1, here}), node.input(kOffset));
  if (has_operand(node, kFirst)) row = b.sub(row, b.reshape(node.input(kFirst), {batch, 1}));
  row = b.expand(row, {batch, here});
  Value* last = b.scalar(DType::int64, count);
  if (node.get_string("mode", "linear") == "circular") {
    row = b.emit("Mod", {row, node.input(kAllRows)});
    Value* rounds = b.div(b.sub(b.sub(last, b.scalar(DType::int64, 1)), row), node.input(kAllRows));
    row = b.where(b.emit("Less", {row, last}), b.add(row, b.mul(rounds, node.input(kAllRows))), row);
  }
  Value* written = b.both(b.emit("Less", {row, last}), b.emit("GreaterOrEqual", {row, b.scalar(DType::int64, 0)}));
  // A row behind the update is for those that it does not write.
  Shape none = update;
  none[axis] = 1;
  Value* longer = b.emit("Concat", {node.input(kUpdate), b.zeros(node.input(kUpdate)->dtype(), none)},
                         {{"axis", static_cast<int64_t>(axis), ""}});
  const RowsInFront order(axis, cache.size());
  Value* rows =
      b.emit("GatherND", {b.transpose(longer, order.front), b.reshape(b.where(written, row, last), {batch, here, 1})},
             {{"batch_dims", int64_t{1}, ""}});
  Shape beside(cache.size(), 1);
  beside[0] = batch;
  beside[axis] = here;
  return {b.where(b.reshape(written, beside), b.transpose(rows, order.back), node.input(kCache))};
}

// The gradient of the cache is the result's, with zeros where the update went; that of the update is the result's
// there.
void tensor_scatter_gradient(GradientBuilder& b) {
  const auto axis = static_cast<int64_t>(written_axis(b.node));
  const Shape &cache = b.x(kCache)->shape(), &update = b.x(kUpdate)->shape();
  const Expr &batch = cache[0], &count = update[static_cast<size_t>(axis)], &size = cache[static_cast<size_t>(axis)];
  const bool circular = b.node.get_string("mode", "linear") == "circular";
  if (b.wants(kCache)) {
    std::vector<Value*> operands = {b.g(), b.zeros(b.x(kUpdate)->dtype(), update)};
    if (has_operand(b.node, kFirst)) operands.push_back(b.x(kFirst));
    b.give(kCache,
           b.emit("TensorScatter", operands, {{"axis", axis, ""}, {"mode", b.node.get_string("mode", "linear"), ""}}));
  }
  if (!b.wants(kUpdate)) return;
  // Rows that later ones overwrite have no part in the result.
  const auto room = (size - count).upper_bound();
  if (circular && room && *room < 0)
    b.refuse(
        fmt::format("its update of {} goes around a cache of {} and over its own rows; make the cache longer or the "
                    "update shorter",
                    count.str(), size.str()));
  Value* place = b.reshape(b.range(count), {1, count});
  if (has_operand(b.node, kFirst)) {
    Value* first = b.x(kFirst);
    // Whatever the number is, the sum does not overflow.
    if (circular) first = b.emit("Mod", {first, b.scalar(DType::int64, size)});
    place = b.add(b.reshape(first, {batch, 1}), place);
  }
  place = b.emit("Mod", {b.expand(place, {batch, count}), b.scalar(DType::int64, size)});
  const RowsInFront order(static_cast<size_t>(axis), cache.size());
  Value* rows = b.emit("GatherND", {b.transpose(b.g(), order.front), b.reshape(place, {batch, count, 1})},
                       {{"batch_dims", int64_t{1}, ""}});
  b.give(kUpdate, b.transpose(rows, order.back));
}

}  // namespace

std::vector<OpDef> cache_ops() {
  return {
      {.type = "TensorScatter",
       .infer = infer_tensor_scatter,
       .rule = tensor_scatter_rule,
       .localize = localize_tensor_scatter,
       .gradient = tensor_scatter_gradient,
       .moves = Moves::some,
       .examples = tensor_scatter_examples},
      {.type = "TensorScatterShard",
       .domain = "tessera",
       .infer = infer_tensor_scatter,
       .rule = tensor_scatter_rule,
       .no_gradient = kMadeByPartitioner,
       .body = tensor_scatter_shard_body,
       .moves = Moves::some,
       .examples = tensor_scatter_shard_examples},
  };
}

}  // namespace tessera::ops

#include "tessera/ops/dims.h"
#include "tessera/ops/gradient.h"
#include "tessera/ops/infer.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/require.h"

namespace tessera::ops {
namespace {

enum Operand : size_t { kCache, kUpdate, kFirst };

size_t written_axis(const Node& node) {
  const size_t axis = normalize_axis(node, node.get_int("axis", -2), shape_of(node, kCache).size());
  if (axis == 0) fail_node(node, "its axis is the batch's; it must be another");
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
  set_result(node, 0, dtype, cache);
}

// "a b t d, a b u d, a -> a b t d | t: whole, u: whole": what lies beside the axis passes.
Rule tensor_scatter_rule(const Node& node) {
  const Shape &cache = shape_of(node, kCache), &update = shape_of(node, kUpdate);
  const size_t axis = written_axis(node);
  Rule rule = blank_rule(node);
  for (size_t d = 0; d < cache.size(); ++d) {
    const int factor = rule.add(factor_name(d), cache[d], d == axis ? FactorKind::whole : FactorKind::pass);
    rule.operands[kCache][d] = rule.results[0][d] = {factor};
    rule.operands[kUpdate][d] = {d == axis ? rule.add("u", update[d], FactorKind::whole) : factor};
  }
  if (has_operand(node, kFirst)) rule.operands[kFirst][0] = rule.operands[kCache][0];
  return rule;
}

// The gradient of the cache is zero where the update went; that of the update is what lies there.
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
  std::vector<int64_t> front = {0, axis}, back(cache.size());
  for (size_t d = 1; d < cache.size(); ++d)
    if (static_cast<int64_t>(d) != axis) front.push_back(static_cast<int64_t>(d));
  for (size_t d = 0; d < front.size(); ++d) back[static_cast<size_t>(front[d])] = static_cast<int64_t>(d);
  Value* rows = b.emit("GatherND", {b.transpose(b.g(), front), b.reshape(place, {batch, count, 1})},
                       {{"batch_dims", int64_t{1}, ""}});
  b.give(kUpdate, b.transpose(rows, back));
}

}  // namespace

std::vector<OpDef> cache_ops() {
  return {
      {.type = "TensorScatter",
       .infer = infer_tensor_scatter,
       .rule = tensor_scatter_rule,
       .gradient = tensor_scatter_gradient,
       .moves = Moves::some},
  };
}

}  // namespace tessera::ops

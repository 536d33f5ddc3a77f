#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/raise/affine.h"

// Exporters build masks by vmapped indexing. Worked example, padding mask m of shape [b, s]:
//   rows = arange(b)[:, None, None, None], columns = arange(s)[None, None, None, :]
//   GatherND(m, stack(rows, columns)) of shape [b, 1, 1, s]
// The indices' components are exactly the coordinates 0 and 3, and cover m: the result is Reshape(m, [b, 1, 1, s]).
namespace tessera::rewrite {
namespace {

/// result[i…, t…] = x[i[coordinates[0]], i[coordinates[1]], …, t…]: for each of x's first dimensions, the leading
/// dimension of the result that indexes it (nullopt for an extent of 1).
struct Reindexing {
  std::vector<std::optional<size_t>> coordinates;
  Shape leading, trailing;
};

Value* reindexed(Graph& graph, Value* x, const Reindexing& how, const Node* before) {
  std::vector<int64_t> permutation(x->rank());
  std::iota(permutation.begin(), permutation.end(), 0);
  std::stable_sort(permutation.begin(), permutation.begin() + how.coordinates.size(), [&](int64_t a, int64_t b) {
    return how.coordinates[a].value_or(0) < how.coordinates[b].value_or(0);
  });
  Shape small(how.leading.size(), Expr(1)), full = how.leading;
  for (auto coordinate : how.coordinates)
    if (coordinate) small[*coordinate] = how.leading[*coordinate];
  small.insert(small.end(), how.trailing.begin(), how.trailing.end());
  full.insert(full.end(), how.trailing.begin(), how.trailing.end());
  return expanded(graph, reshaped(graph, transposed(graph, x, permutation, before), small, before), full, before);
}

std::optional<Reindexing> plan_gather_nd(const AffineAnalysis& analysis, const Node& node) {
  if (node.get_int("batch_dims", 0) != 0) return std::nullopt;
  auto components = analysis.components(node.inputs[1]);
  if (!components) return std::nullopt;
  const Shape& table = node.inputs[0]->shape();
  Reindexing plan;
  plan.leading.assign(node.inputs[1]->shape().begin(), node.inputs[1]->shape().end() - 1);
  plan.trailing.assign(table.begin() + components->size(), table.end());
  std::set<size_t> used;
  for (size_t k = 0; k < components->size(); ++k) {
    auto coordinate = (*components)[k].coordinate();
    if (!coordinate && (*components)[k].uniform() == 0 && table[k].is(1)) {
      plan.coordinates.push_back(std::nullopt);
      continue;
    }
    if (!coordinate || !(plan.leading[*coordinate] == table[k]) || !used.insert(*coordinate).second)
      return std::nullopt;
    plan.coordinates.push_back(coordinate);
  }
  return plan;
}

/// Gather along axis 0 of a Reshape that merged x's first `merged` dimensions, by an index that is the row-major
/// position in them.
std::optional<Reindexing> plan_row_major(const Affine& index, const Node& node, const Value& x, size_t merged) {
  Reindexing plan{std::vector<std::optional<size_t>>(merged), node.inputs[1]->shape(), {}};
  const Shape& table = node.inputs[0]->shape();
  plan.trailing.assign(table.begin() + 1, table.end());
  if (!index.offset.is(0)) return std::nullopt;
  std::set<size_t> open;
  for (size_t d = 0; d < index.strides.size(); ++d)
    if (!index.strides[d].is(0)) open.insert(d);
  Expr stride = 1;
  for (size_t k = merged; k-- > 0;) {
    const Expr& extent = x.shape()[k];
    if (extent.is(1)) continue;
    auto found = std::find_if(open.begin(), open.end(),
                              [&](size_t d) { return index.strides[d] == stride && plan.leading[d] == extent; });
    if (found == open.end()) return std::nullopt;
    plan.coordinates[k] = *found;
    open.erase(found);
    stride = stride * extent;
  }
  return open.empty() ? std::optional(plan) : std::nullopt;
}

/// The result of a Gather or GatherND that only moves dimensions; null for others.
Value* raise_gather(Graph& graph, const AffineAnalysis& analysis, const Node& node) {
  Value* table = node.inputs[0];
  if (node.is("GatherND")) {
    auto plan = plan_gather_nd(analysis, node);
    return plan ? reindexed(graph, table, *plan, &node) : nullptr;
  }
  const Affine* index = analysis.of(node.inputs[1]);
  if (!index || axis_of(node, "axis", 0, table->rank()) != 0) return nullptr;
  Node* reshape = made_by(table, "Reshape");
  Value* x = reshape ? reshape->inputs[0] : table;
  Expr rows = 1;
  for (size_t merged = 0; merged <= x->rank(); ++merged) {
    if (merged > 0) rows = rows * x->shape()[merged - 1];
    if (merged == 0 || !(rows == table->shape()[0])) continue;
    if (auto plan = plan_row_major(*index, node, *x, merged)) return reindexed(graph, x, *plan, &node);
  }
  return nullptr;
}

Value* scalar_operand(Graph& graph, const Expr& value) {
  auto number = value.constant();
  return number ? graph.constant_int64({*number}, true) : graph.add_expression("index", {value}, true);
}

/// The value's simplest form: a broadcast scalar or a broadcast Range. Null if it has none.
Value* plain_form(Graph& graph, const Value& value, const Affine& affine, const Node* before) {
  const Shape& shape = value.shape();
  if (affine.is_uniform()) {
    auto number = affine.uniform();
    if (!number && value.dtype() != DType::int64) return nullptr;
    Value* scalar = number ? graph.constant_scalar(value.dtype(), static_cast<double>(*number))
                           : graph.add_expression("index", {affine.offset}, true);
    return expanded(graph, scalar, shape, before);
  }
  size_t along = 0;
  size_t varying = 0;
  for (size_t d = 0; d < shape.size(); ++d)
    if (!affine.strides[d].is(0)) {
      along = d;
      ++varying;
    }
  const Expr& step = affine.strides[along];
  if (varying != 1 || !step.constant() || value.dtype() == DType::boolean) return nullptr;
  Value* range = emit(graph, "Range",
                      {scalar_operand(graph, affine.offset), scalar_operand(graph, affine.offset + step * shape[along]),
                       scalar_operand(graph, step)},
                      before);
  if (!(range->shape()[0] == shape[along])) return nullptr;
  if (value.dtype() != DType::int64)
    range = emit(graph, "Cast", {range}, before, {attribute("to", static_cast<int64_t>(value.dtype()))});
  Shape line(shape.size(), Expr(1));
  line[along] = shape[along];
  return expanded(graph, reshaped(graph, range, line, before), shape, before);
}

/// A running sum of one whole number, in floats, as a running sum of integers, which is affine; null for other sums.
Value* raise_running_sum(Graph& graph, const Node& node) {
  const Value* x = node.inputs[0];
  while (made_by(x, "Expand") || made_by(x, "Reshape")) x = x->producer->inputs[0];
  const auto number = scalar_of(x);
  // Sums of small numbers are exact as long as their count is.
  if (!number || *number != std::trunc(*number) || std::abs(*number) > 16 || x->dtype() != DType::float32)
    return nullptr;
  Value* integers =
      expanded(graph, graph.constant_int64({static_cast<int64_t>(*number)}, true), node.inputs[0]->shape(), &node);
  Value* sum = emit(graph, "CumSum", {integers, node.inputs[1]}, &node, node.attributes);
  return emit(graph, "Cast", {sum}, &node, {attribute("to", static_cast<int64_t>(DType::float32))});
}

bool is_plain(const Value* value) {
  for (std::string_view view : {"Expand", "Reshape"})
    if (Node* node = made_by(value, view)) value = node->inputs[0];
  if (value->kind == ValueKind::expression) return value->rank() == 0;
  if (value->kind == ValueKind::constant) return value->data.count() == 1;
  return made_by(value, "Range");
}

bool used_beyond(const AffineAnalysis& analysis, const Value& value) {
  return std::any_of(value.uses.begin(), value.uses.end(), [&](const Use& use) {
    // Operands that only give a shape, an axis or the like are already in their simplest form.
    if (value.content && use.index > 0 && !use.node->is("Gather") && value.rank() == 1) return false;
    return !analysis.of(use.node->outputs[0]);
  });
}

}  // namespace

void raise_indexing(OnnxModel& model) {
  Graph& graph = *model.graph;
  {
    AffineAnalysis analysis(graph);
    for (Node* node : nodes_of(graph))
      if ((node->is("Gather") || node->is("GatherND")) && !analysis.of(node->outputs[0]))
        if (Value* moved = raise_gather(graph, analysis, *node)) replace(graph, node->outputs[0], moved);
  }
  for (Node* node : nodes_of(graph))
    if (node->is("CumSum"))
      if (Value* multiples = raise_running_sum(graph, *node)) replace(graph, node->outputs[0], multiples);
  graph.erase_dead();
  AffineAnalysis analysis(graph);
  std::vector<Value*> values;
  for (const auto& value : graph.values()) values.push_back(value.get());
  for (Value* value : values) {
    const Affine* affine = analysis.of(value);
    bool leaf = !value->producer;
    if (!affine || graph.is_output(value) || value->uses.empty() || is_plain(value) || (leaf && value->rank() <= 1) ||
        !used_beyond(analysis, *value))
      continue;
    const Node* before = leaf ? graph.nodes().front().get() : value->producer;
    if (Value* plain = plain_form(graph, *value, *affine, before)) replace(graph, value, plain);
  }
  graph.erase_dead();
}

}  // namespace tessera::rewrite

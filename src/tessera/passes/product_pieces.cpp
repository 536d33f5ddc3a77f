#include "tessera/passes/product_pieces.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/ops/op.h"

namespace tessera::passes {
namespace {

std::optional<ops::Rule> rule_of(const Node& node) {
  const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
  if (!op || !op->rule || node.outputs.size() != 1 || !node.outputs[0] || !node.captures.empty()) return std::nullopt;
  return op->rule(node);
}

// The dimension along factor `f`; nullopt if there is none. False if a dimension is a product of this factor and
// others, or if two are along it.
bool find_factor(const std::vector<ops::DimFactors>& dims, int f, std::optional<size_t>& found) {
  for (size_t d = 0; d < dims.size(); ++d) {
    if (std::find(dims[d].begin(), dims[d].end(), f) == dims[d].end()) continue;
    if (dims[d].size() > 1 || found) return false;
    found = d;
  }
  return true;
}

std::optional<Along> along(const Node& node, const ops::Rule& rule, const ops::DimFactors& factors) {
  if (factors.size() != 1) return std::nullopt;
  const int f = factors.front();
  const ops::Factor& factor = rule.factors[static_cast<size_t>(f)];
  const bool sums = factor.kind == ops::FactorKind::reduction && factor.reduction == Reduction::sum;
  if (!sums && factor.kind != ops::FactorKind::pass) return std::nullopt;
  Along found{std::vector<std::optional<size_t>>(node.inputs.size()), {}};
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i < rule.operands.size() && !find_factor(rule.operands[i], f, found.operands[i])) return std::nullopt;
    // An operand that is not multiplied is no part of each term.
    if (sums && node.inputs[i] && !found.operands[i]) return std::nullopt;
  }
  if (!find_factor(rule.results[0], f, found.result) || found.result.has_value() == sums) return std::nullopt;
  return found;
}

}  // namespace

bool is_product(const Node& node) {
  const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
  if (!op || !op->flops || node.inputs.size() < 2) return false;
  const auto rule = rule_of(node);
  if (!rule) return false;
  bool multiplies = false;
  for (size_t f = 0; f < rule->factors.size(); ++f) {
    const ops::Factor& factor = rule->factors[f];
    if (factor.kind == ops::FactorKind::pass) continue;
    if (factor.kind != ops::FactorKind::reduction || factor.reduction != Reduction::sum) return false;
    const auto has_factor = [&](const std::vector<ops::DimFactors>& operand) {
      return std::any_of(operand.begin(), operand.end(), [&](const ops::DimFactors& dim) {
        return std::find(dim.begin(), dim.end(), static_cast<int>(f)) != dim.end();
      });
    };
    multiplies |= std::count_if(rule->operands.begin(), rule->operands.end(), has_factor) > 1;
  }
  return multiplies;
}

bool is_movement(const Node& node) {
  // Other movements have operands that name extents of the whole.
  return node.inputs.size() == 1 && ops::moves_of(node) == ops::Moves::all;
}

std::optional<Along> along_operand(const Node& node, size_t operand, size_t dim) {
  const auto rule = rule_of(node);
  if (!rule || operand >= rule->operands.size() || dim >= rule->operands[operand].size()) return std::nullopt;
  return along(node, *rule, rule->operands[operand][dim]);
}

std::optional<Along> along_result(const Node& node, size_t dim) {
  const auto rule = rule_of(node);
  if (!rule || rule->results.empty() || dim >= rule->results[0].size()) return std::nullopt;
  return along(node, *rule, rule->results[0][dim]);
}

Value* sliced(Graph& graph, Value* value, size_t dim, const ops::Interval& elements, const Node* before) {
  Node* node = graph.add_node(
      "Slice",
      {value, graph.add_expression(value->name + ".start", {elements.begin}),
       graph.add_expression(value->name + ".end", {elements.end}), graph.constant_int64({static_cast<int64_t>(dim)})},
      {value->name + ".piece"}, "", before);
  Shape shape = value->shape();
  shape[dim] = elements.count();
  node->outputs[0]->type = {value->dtype(), std::move(shape)};
  return node->outputs[0];
}

Value* on_piece(spmd::Program& program, const Node& node, const Along& along, const ops::Interval& elements,
                const std::map<size_t, Value*>& given, const Node* before) {
  Graph& graph = *program.graph;
  auto piece = std::make_unique<Node>(node);
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (const auto own = given.find(i); own != given.end())
      piece->inputs[i] = own->second;
    else if (along.operands[i])
      piece->inputs[i] = sliced(graph, node.inputs[i], *along.operands[i], elements, before);
  TensorType type = node.outputs[0]->type;
  if (along.result) (*type.shape)[*along.result] = elements.count();
  piece->outputs = {graph.add_value(node.outputs[0]->name + ".part", ValueKind::result, std::move(type))};
  return graph.adopt_node(std::move(piece), before)->outputs[0];
}

void take_place(spmd::Program& program, Value* old, Value* value) {
  program.graph->replace_uses(old, value);
  for (spmd::Port& port : program.outputs)
    if (port.value == old) port.value = value;
  if (const auto placed = program.placements.find(old); placed != program.placements.end())
    program.placements[value] = spmd::Placement(placed->second);
  value->extra = old->extra;
}

void record_ring(spmd::Program& program, const std::string& value, const std::string& collective,
                 const std::string& axes) {
  for (spmd::ReshardRecord& record : program.reshards) {
    const auto found = std::find(record.steps.begin(), record.steps.end(), collective + " " + axes);
    if (record.value != value || found == record.steps.end()) continue;
    *found = "Ring " + axes;
    return;
  }
}

std::string axes_text(const std::vector<AxisRef>& axes, const Mesh& mesh) {
  std::string text;
  for (const AxisRef& axis : join_axes(axes)) text += (text.empty() ? "" : ",") + axis.str(mesh);
  return text;
}

}  // namespace tessera::passes

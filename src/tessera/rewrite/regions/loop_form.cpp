#include "tessera/rewrite/regions/loop_form.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <numeric>
#include <optional>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/regions/open_regions.h"

namespace tessera::rewrite {

LoopForm form_of_loop(Node* node) {
  LoopForm form{.node = node, .body = &region_of(*node, "body")};
  const size_t operands = node->operand_count();
  form.trips = operands > 0 ? node->inputs[0] : nullptr;
  form.condition = operands > 1 ? node->inputs[1] : nullptr;
  for (size_t i = 2; i < operands; ++i) form.initial.push_back(node->inputs[i]);
  form.first_input = 2;
  form.computes_condition = true;
  const Graph& body = *form.body;
  if (body.inputs.size() != form.initial.size() + 2 || body.outputs.size() < form.initial.size() + 1)
    fail("flow", "{}: its body takes {} and gives {}, which does not fit {}; the file is damaged", node->label(),
         counted(body.inputs.size(), "value"), body.outputs.size(), counted(form.initial.size(), "carried value"));
  form.iteration = body.inputs[0];
  form.runs = body.inputs[1];
  form.scanned.resize(body.outputs.size() - 1 - form.initial.size());
  return form;
}

LoopForm form_of_scan(Graph& graph, Node* node) {
  LoopForm form{.node = node, .body = &region_of(*node, "body")};
  const Graph& body = *form.body;
  const auto sequences = static_cast<size_t>(std::max<int64_t>(0, node->get_int("num_scan_inputs", 0)));
  if (sequences == 0 || sequences > node->operand_count() || body.inputs.size() != node->operand_count() ||
      body.outputs.size() < node->operand_count() - sequences)
    fail("flow",
         "{}: its body takes {} and gives {}, which does not fit {} with {}; the "
         "file is damaged",
         node->label(), counted(body.inputs.size(), "value"), body.outputs.size(),
         counted(node->operand_count(), "operand"), counted(sequences, "scan input"));
  const size_t carried = node->operand_count() - sequences, outputs = body.outputs.size() - carried;
  for (size_t i = 0; i < carried; ++i) form.initial.push_back(node->inputs[i]);
  const auto flags = [&](std::string_view name, size_t count) {
    auto values = node->get_ints(name, std::vector<int64_t>(count, 0));
    if (values.size() != count)
      fail("flow", "{}: its attribute '{}' has {}, not {}", node->label(), name, counted(values.size(), "element"),
           count);
    return values;
  };
  const auto axes = flags("scan_input_axes", sequences), directions = flags("scan_input_directions", sequences);
  std::optional<Expr> trips;
  for (size_t i = 0; i < sequences; ++i) {
    Value* whole = node->inputs[carried + i];
    if (!whole || !whole->has_shape()) fail("flow", "{}: its scan input {} has no known shape", node->label(), i);
    const size_t axis = ops::normalize_axis(*node, axes[i], whole->rank(), "scan_input_axes");
    const auto extent = trips ? ops::same_extent(*trips, whole->shape()[axis]) : whole->shape()[axis];
    if (!extent)
      fail("flow", "{}: its scan inputs have {} and {} elements along their scan axes; these must be equal",
           node->label(), trips->str(), whole->shape()[axis].str());
    trips = *extent;
    std::vector<int64_t> order(whole->rank());
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + static_cast<long>(axis), order.begin() + static_cast<long>(axis) + 1);
    form.sequences.push_back({transposed(graph, whole, order, node), directions[i] != 0});
  }
  const auto count = trips->constant();
  form.trips = count ? graph.constant_int64({*count}, true) : graph.add_expression("trips", {*trips}, true);
  const auto out_axes = flags("scan_output_axes", outputs), out_directions = flags("scan_output_directions", outputs);
  for (size_t i = 0; i < outputs; ++i) form.scanned.push_back({out_axes[i], out_directions[i] != 0});
  return form;
}

bool is_sum_over_parameters(const LoopForm& form) {
  const Graph& body = *form.body;
  const auto behind = [](const Value* value, std::initializer_list<std::string_view> types) {
    while (value->producer && std::find(types.begin(), types.end(), value->producer->op_type) != types.end())
      value = value->producer->inputs.front();
    return value;
  };
  for (size_t c = 0; c < form.initial.size(); ++c) {
    const Value* carried = form.carried_input(c);
    const Node* add = behind(body.outputs[form.carried_output(c)], {"Identity"})->producer;
    if (!add || !add->is("Add") || carried->uses.size() != 1 || carried->uses.front().node != add) return false;
  }
  std::map<const Value*, Value*> outside, items;
  map_captures(*form.node, body, outside);
  for (size_t i = 0; i < form.sequences.size(); ++i) items[form.item_input(i)] = form.sequences[i].whole;
  const auto is_stack = [&](const Value* value) {
    value = behind(value, {"Transpose"});
    return value->kind == ValueKind::state && value->rank() == 3;
  };
  const auto is_row = [&](const Value* factor) {
    factor = behind(factor, {"Transpose", "Squeeze", "Identity"});
    if (const auto item = items.find(factor); item != items.end()) return is_stack(item->second);
    const Node* gather = factor->producer;
    if (!gather || !gather->is("Gather") || gather->get_int("axis", 0) != 0 || !form.iteration) return false;
    const auto stack = outside.find(gather->inputs[0]);
    return behind(gather->inputs[1], {"Unsqueeze", "Reshape", "Cast", "Identity"}) == form.iteration &&
           stack != outside.end() && is_stack(stack->second);
  };
  return !form.initial.empty() && std::any_of(body.nodes().begin(), body.nodes().end(), [&](const auto& node) {
    return (node->is("MatMul") || node->is("Gemm")) && is_row(node->inputs[1]);
  });
}

}  // namespace tessera::rewrite

#include <algorithm>
#include <cctype>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/upgrade/steps.h"

namespace tessera::rewrite {
namespace {

/// A scalar of the type of `like`, which is not known yet.
Value* scalar_like(Graph& graph, float value, Value* like, const Node* before) {
  return untyped(graph, "CastLike", {graph.constant_scalar(DType::float32, value), like}, before);
}

/// Keeps dimension 0 of a list: turns a scalar into a list of one.
Value* as_list(Graph& graph, Value* scalar, const Node* before) {
  return untyped(graph, "Reshape", {scalar, graph.constant_int64({1})}, before);
}

/// Aligns operand 1 with the dimensions of operand 0 from `axis` on, since broadcasting aligns the last ones: beside
/// [N, C, H, W] and with axis 1, [C] becomes [C, 1, 1].
void align_operand(Graph& graph, Node* node, int64_t axis) {
  Value* other = node->input(1);
  Value* shape = untyped(graph, "Shape", {other}, node);
  Value* missing = untyped(
      graph, "Sub", {graph.constant_int64({-axis}), as_list(graph, untyped(graph, "Size", {shape}, node), node)}, node);
  if (axis >= 0) {
    Value* rank = untyped(graph, "Size", {untyped(graph, "Shape", {node->input(0)}, node)}, node);
    missing = untyped(graph, "Add", {missing, as_list(graph, rank, node)}, node);
  }
  Value* ones = untyped(graph, "ConstantOfShape", {missing}, node,
                        {attribute("value", Tensor::of<int64_t>(DType::int64, {1}, {1}))});
  Value* aligned = untyped(graph, "Concat", {shape, ones}, node, {attribute("axis", int64_t{0})});
  graph.set_input(node, 1, untyped(graph, "Reshape", {other, aligned}, node));
}

/// Operands were broadcast only with the attribute `broadcast`, from an axis on if `axis` is given.
void align_on_request(Graph& graph, Node* node, int64_t) {
  const auto* axis = node->get<int64_t>("axis");
  if (axis && node->get_int("broadcast", 0) != 0) align_operand(graph, node, *axis);
  node->remove_attribute("axis");
  node->remove_attribute("broadcast");
}

/// A list of slopes had one entry per channel, which is dimension 1.
void align_slopes(Graph& graph, Node* node, int64_t) {
  align_operand(graph, node, 1);
}

void move_shape(Graph& graph, Node* node, int64_t) {
  move_to_operand(graph, node, "shape", 1);
}

void move_sizes(Graph& graph, Node* node, int64_t) {
  move_to_operand(graph, node, "split", 1);
}

void move_bounds(Graph& graph, Node* node, int64_t) {
  move_to_operand(graph, node, "starts", 1);
  move_to_operand(graph, node, "ends", 2);
  move_to_operand(graph, node, "axes", 3);
}

void move_count(Graph& graph, Node* node, int64_t) {
  if (const auto* k = node->get<int64_t>("k")) set_numbers(graph, node, 1, {*k});
  node->remove_attribute("k");
}

void move_limits(Graph& graph, Node* node, int64_t) {
  size_t index = 1;
  for (const char* name : {"min", "max"}) {
    if (const auto* limit = node->get<float>(name))
      graph.set_input(node, index, scalar_like(graph, *limit, node->input(0), node));
    node->remove_attribute(name);
    ++index;
  }
}

void rename_paddings(Graph&, Node* node, int64_t) {
  if (const auto* pads = node->get<std::vector<int64_t>>("paddings")) node->set("pads", std::vector<int64_t>(*pads));
  node->remove_attribute("paddings");
}

void move_padding(Graph& graph, Node* node, int64_t) {
  move_to_operand(graph, node, "pads", 1);
  graph.set_input(node, 2, scalar_like(graph, node->get_float("value", 0), node->input(0), node));
  node->remove_attribute("value");
}

void state_concat_axis(Graph&, Node* node, int64_t) {
  if (!node->find_attribute("axis")) node->set("axis", int64_t{1});
}

/// Types were spelt out: "FLOAT".
void number_type(Graph&, Node* node, int64_t) {
  const auto* name = node->get<std::string>("to");
  if (!name) return;
  std::string lower = *name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  node->set("to", static_cast<int64_t>(dtype_named(lower)));
}

void state_selu_constants(Graph&, Node* node, int64_t) {
  if (!node->find_attribute("alpha")) node->set("alpha", 1.6732f);
  if (!node->find_attribute("gamma")) node->set("gamma", 1.0507f);
}

void refuse_tiles(Graph&, Node* node, int64_t) {
  fail("upgrade", "{}: the Tile of operator sets before 6 is not supported; export with operator set 6 or newer",
       node->label());
}

/// Flattens the operand to a matrix from `axis` on, applies softmax to its rows, and restores the shape.
void flatten_softmax(Graph& graph, Node* node, int64_t) {
  const int64_t axis = node->get_int("axis", 1);
  node->set("axis", int64_t{-1});
  if (axis == -1) return;
  Value* x = node->input(0);
  Value* shape = untyped(graph, "Shape", {x}, node);
  Value* flat = untyped(graph, "Flatten", {x}, node, {attribute("axis", axis)});
  Value* rows = untyped(graph, node->op_type, {flat}, node, node->attributes);
  node->op_type = "Reshape";
  node->attributes.clear();
  graph.set_input(node, 0, rows);
  graph.set_input(node, 1, shape);
}

/// An attribute told whether a node is in training.
void drop_test_mode(Graph&, Node* node, int64_t) {
  if (node->get_int("is_test", 0) == 0)
    fail("upgrade", "{}: {} in training mode is not supported; export the model in evaluation mode (model.eval())",
         node->label(), node->op_type);
  node->remove_attribute("is_test");
}

void drop_spatial(Graph&, Node* node, int64_t) {
  if (node->get_int("spatial", 1) != 1)
    fail("upgrade",
         "{}: spatial = 0 (statistics for every element) is not supported; export with operator set 9 or newer",
         node->label());
  node->remove_attribute("spatial");
}

/// The ratio was an attribute. Training has to be requested since version 12.
void move_ratio(Graph& graph, Node* node, int64_t version) {
  if (Value* mask = node->output(1); mask && version < 10 && (!mask->uses.empty() || graph.is_output(mask)))
    fail("upgrade", "{}: the mask of a Dropout before operator set 10 is not supported; export with a newer one",
         node->label());
  if (const float* ratio = node->get<float>("ratio"))
    graph.set_input(node, 1, graph.constant_scalar(DType::float32, *ratio));
  node->remove_attribute("ratio");
}

/// Upsample is a Resize that takes the element before, or interpolates between whole positions.
void upsample_to_resize(Graph& graph, Node* node, int64_t) {
  Value* scales = node->input(1);
  if (const auto* listed = node->get<std::vector<float>>("scales")) {
    scales = graph.add_constant("scales", Tensor::of(DType::float32, {static_cast<int64_t>(listed->size())}, *listed));
  } else if (!scales) {
    std::vector<float> sides = {1, 1, node->get_float("height_scale", 1), node->get_float("width_scale", 1)};
    scales = graph.add_constant("scales", Tensor::of(DType::float32, {4}, sides));
  }
  if (node->get_string("mode", "nearest") == "bilinear") node->set("mode", std::string("linear"));
  for (const char* name : {"scales", "height_scale", "width_scale"}) node->remove_attribute(name);
  graph.set_input(node, 1, scales);
  node->op_type = "Resize";
}

/// Scales were operand 1, and positions were scaled from the first element's corner.
void move_scales(Graph& graph, Node* node, int64_t) {
  Value* scales = node->input(1);
  graph.set_input(node, 1, nullptr);
  graph.set_input(node, 2, scales);
  node->set("coordinate_transformation_mode", std::string("asymmetric"));
  node->set("nearest_mode", std::string("floor"));
}

void upgrade_upsample(Graph& graph, Node* node, int64_t version) {
  upsample_to_resize(graph, node, version);
  move_scales(graph, node, version);
}

/// Before version 9, dimension 0 of all operands and results is a batch: an outer Scan goes over the batch, and its
/// body is a Scan over the sequence.
void scan_batch(Graph& graph, Node* node, int64_t) {
  const auto* region = node->get<Region>("body");
  if (node->operand_count() < 2 || !region)
    fail("upgrade", "{}: its operands or its body are missing; the file is damaged", node->label());
  if (node->input(0))
    fail("upgrade", "{}: sequences of different lengths are not supported; pad them, or export a newer opset",
         node->label());
  auto batch = std::make_unique<Graph>();
  batch->name = "batch";
  auto inner = std::make_unique<Node>();
  inner->op_type = "Scan";
  inner->name = node->name;
  inner->captures = node->captures;
  const auto item = [&](size_t operand) {
    return batch->add_input((node->name.empty() ? node->op_type : node->name) + ".item_" + std::to_string(operand), {});
  };
  for (size_t i = 1; i < node->operand_count(); ++i) inner->inputs.push_back(item(i));
  for (const std::string& capture : node->captures)
    inner->inputs.push_back(batch->add_value(capture, ValueKind::input, {}));
  inner->set("num_scan_inputs", node->get_int("num_scan_inputs", 0));
  if (const auto directions = node->get_ints("directions"); !directions.empty())
    inner->set("scan_input_directions", directions);
  for (const Value* output : (*region)->outputs)
    inner->outputs.push_back(batch->add_value(output->name + ".all", ValueKind::result));
  inner->set("body", Region(*region));
  batch->outputs = inner->outputs;
  batch->adopt_node(std::move(inner));
  node->set("num_scan_inputs", static_cast<int64_t>(node->operand_count() - 1));
  node->remove_attribute("directions");
  node->set("body", Region(std::move(batch)));
  for (size_t i = 1; i < node->inputs.size(); ++i) graph.set_input(node, i - 1, node->inputs[i]);
  graph.set_input(node, node->inputs.size() - 1, nullptr);
  node->inputs.pop_back();
}

}  // namespace

void move_axes(Graph& graph, Node* node, int64_t) {
  move_to_operand(graph, node, "axes", 1);
}

std::vector<UpgradeStep> early_steps() {
  std::vector<UpgradeStep> steps = {
      {"Concat", 4, state_concat_axis},
      {"Reshape", 5, move_shape},
      {"Cast", 6, number_type},
      {"Selu", 6, state_selu_constants},
      {"Tile", 6, refuse_tiles},
      {"PRelu", 7, align_slopes},
      {"Dropout", 7, drop_test_mode},
      {"Dropout", 12, move_ratio},
      {"BatchNormalization", 7, drop_test_mode},
      {"BatchNormalization", 9, drop_spatial},
      {"Slice", 10, move_bounds},
      {"TopK", 10, move_count},
      {"Upsample", kEveryVersion, upgrade_upsample},
      {"Resize", 11, move_scales},
      {"Clip", 11, move_limits},
      {"Pad", 2, rename_paddings},
      {"Pad", 11, move_padding},
      {"Split", 13, move_sizes},
      {"Scan", 9, scan_batch},
  };
  for (const char* type : {"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"})
    steps.push_back({type, 7, align_on_request});
  for (const char* type : {"Squeeze", "Unsqueeze", "ReduceSum"}) steps.push_back({type, 13, move_axes});
  for (const char* type : {"Softmax", "LogSoftmax", "Hardmax"}) steps.push_back({type, 13, flatten_softmax});
  return steps;
}

}  // namespace tessera::rewrite

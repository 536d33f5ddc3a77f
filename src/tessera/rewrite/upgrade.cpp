#include <array>

#include "tessera/base/error.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/pipeline.h"

// Types are not known yet here: what depends on them is emitted as Shape arithmetic, which `fold` evaluates.
namespace tessera::rewrite {
namespace {

/// Sets node's operand `index` to a constant of those numbers.
void set_numbers(Graph& graph, Node* node, size_t index, std::vector<int64_t> numbers) {
  graph.set_input(node, index, graph.constant_int64(std::move(numbers)));
}

Value* untyped(Graph& graph, std::string_view type, std::vector<Value*> operands, const Node* before,
               std::vector<Attribute> attributes = {}) {
  Node* node = graph.add_node(type, std::move(operands), {""}, "", before);
  node->attributes = std::move(attributes);
  return node->outputs[0];
}

/// Reductions take their axes as an operand since version 18.
void move_axes_to_operand(Graph& graph, Node* node, int64_t version) {
  const auto* axes = node->get<std::vector<int64_t>>("axes");
  if (version >= 18 || !axes) return;
  set_numbers(graph, node, 1, *axes);
  node->remove_attribute("axes");
}

/// Since version 18 a Split without sizes says how many pieces it makes.
void count_pieces(Graph&, Node* node, int64_t version) {
  if (version >= 18 || node->input(1)) return;
  node->set("num_outputs", static_cast<int64_t>(node->outputs.size()));
}

void state_axis(Graph&, Node* node, int64_t) {
  if (!node->find_attribute("axis")) node->set("axis", int64_t{-1});
}

/// Outside training only the first result means anything (and before version 14 the other results meant training).
void drop_statistics(Graph& graph, Node* node, int64_t version) {
  bool extra_results = false;
  for (size_t i = 1; i < node->outputs.size(); ++i) {
    Value* result = node->outputs[i];
    extra_results = extra_results || (result && (!result->uses.empty() || graph.is_output(result)));
  }
  if (node->get_int("training_mode", 0) != 0 || (version < 14 && extra_results))
    fail("upgrade",
         "{}: BatchNormalization in training mode is not supported; export the model in evaluation mode (model.eval())",
         node->label());
  node->remove_attribute("training_mode");
  if (node->outputs.size() == 1) return;
  Node* lean = graph.add_node("BatchNormalization", node->inputs, {node->outputs[0]->name}, "", node);
  lean->attributes = node->attributes;
  lean->name = node->name;
  lean->extra = node->extra;
  replace(graph, node->outputs[0], lean->outputs[0]);
  graph.erase(node);
}

void rename_interpolation(Graph&, Node* node, int64_t version) {
  if (version >= 20) return;
  std::string mode = node->get_string("mode", "bilinear");
  node->set("mode", mode == "bilinear" ? std::string("linear") : mode == "bicubic" ? std::string("cubic") : mode);
}

void keep_pixel_origin(Graph&, Node* node, int64_t version) {
  if (version < 16 && !node->find_attribute("coordinate_transformation_mode"))
    node->set("coordinate_transformation_mode", std::string("output_half_pixel"));
}

/// Before version 21 scale and bias were per group; since then they are per channel: [G] → [G, 1] → [G, C/G] → [C].
void spread_groups(Graph& graph, Node* node, int64_t version) {
  if (version >= 21) return;
  int64_t groups = node->get_int("num_groups", 1);
  Value* channels =
      untyped(graph, "Shape", {node->input(0)}, node, {attribute("start", int64_t{1}), attribute("end", int64_t{2})});
  Value* width = untyped(graph, "Div", {channels, graph.constant_int64({groups})}, node);
  Value* spread =
      untyped(graph, "Concat", {graph.constant_int64({groups}), width}, node, {attribute("axis", int64_t{0})});
  for (size_t i : {1, 2}) {
    Value* column = untyped(graph, "Reshape", {node->input(i), graph.constant_int64({groups, 1})}, node);
    Value* table = untyped(graph, "Expand", {column, spread}, node);
    graph.set_input(node, i, untyped(graph, "Reshape", {table, channels}, node));
  }
}

/// The axis of a DFT became an operand in version 20.
void move_dft_axis(Graph& graph, Node* node, int64_t version) {
  if (version >= 20) return;
  int64_t axis = node->get_int("axis", 1);
  node->remove_attribute("axis");
  graph.set_input(node, 2, graph.constant_int64({axis}, true));
}

void rename_scatter(Graph&, Node* node, int64_t) {
  node->op_type = "ScatterElements";
}

/// An attribute that appeared after kCanonicalOpset, and the value at which it changes nothing.
struct NewerAttribute {
  std::string_view op_type, name;
  AttributeValue neutral;
};

void drop_newer_attributes(Node* node) {
  static const std::array<NewerAttribute, 4> newer = {{
      {"Attention", "left_window_size", int64_t{-1}},
      {"Attention", "right_window_size", int64_t{-1}},
      {"Range", "stash_type", int64_t{1}},
      {"SpaceToDepth", "mode", std::string("DCR")},
  }};
  for (const NewerAttribute& candidate : newer) {
    if (!node->is(candidate.op_type) || !node->find_attribute(candidate.name)) continue;
    const AttributeValue& value = node->find_attribute(candidate.name)->value;
    bool neutral = std::visit(
        [&](const auto& wanted) {
          using T = std::decay_t<decltype(wanted)>;
          if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, std::string>)
            return std::holds_alternative<T>(value) && std::get<T>(value) == wanted;
          else
            return false;
        },
        candidate.neutral);
    if (!neutral)
      fail("upgrade", "{}: {} is newer than opset {} and not supported; export with its default", node->label(),
           candidate.name, kCanonicalOpset);
    node->remove_attribute(candidate.name);
  }
}

struct Upgrade {
  std::string_view op_type;
  void (*apply)(Graph&, Node*, int64_t version);
};

/// Every operator whose form changed between versions 13 and 28 in a way that a default does not cover.
constexpr std::array<Upgrade, 19> kUpgrades = {{
    {"ReduceL1", move_axes_to_operand},
    {"ReduceL2", move_axes_to_operand},
    {"ReduceLogSum", move_axes_to_operand},
    {"ReduceLogSumExp", move_axes_to_operand},
    {"ReduceMax", move_axes_to_operand},
    {"ReduceMean", move_axes_to_operand},
    {"ReduceMin", move_axes_to_operand},
    {"ReduceProd", move_axes_to_operand},
    {"ReduceSumSquare", move_axes_to_operand},
    {"Split", count_pieces},
    {"Softmax", state_axis},
    {"LogSoftmax", state_axis},
    {"Hardmax", state_axis},
    {"BatchNormalization", drop_statistics},
    {"GridSample", rename_interpolation},
    {"RoiAlign", keep_pixel_origin},
    {"GroupNormalization", spread_groups},
    {"DFT", move_dft_axis},
    {"Scatter", rename_scatter},
}};

void upgrade_graph(Graph& graph, int64_t version) {
  for (Node* node : nodes_of(graph)) {
    if (node->domain == "ai.onnx") node->domain.clear();
    for (Attribute& attribute : node->attributes)
      if (auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute.value); body && *body)
        upgrade_graph(**body, version);
    if (!node->domain.empty()) continue;
    for (const Upgrade& step : kUpgrades)
      if (node->op_type == step.op_type) {
        step.apply(graph, node, version);
        break;
      }
    drop_newer_attributes(node);
  }
}

int64_t version_of(const std::map<std::string, int64_t>& imports, int64_t otherwise) {
  for (const char* domain : {"", "ai.onnx"})
    if (auto found = imports.find(domain); found != imports.end()) return found->second;
  return otherwise;
}

void set_version(std::map<std::string, int64_t>& imports) {
  imports.erase("ai.onnx");
  imports[""] = kCanonicalOpset;
}

}  // namespace

void upgrade(OnnxModel& model) {
  int64_t version = model.opset();
  upgrade_graph(*model.graph, version);
  for (Function& function : model.functions) {
    upgrade_graph(*function.body, version_of(function.opset_imports, version));
    set_version(function.opset_imports);
  }
  set_version(model.opset_imports);
}

}  // namespace tessera::rewrite

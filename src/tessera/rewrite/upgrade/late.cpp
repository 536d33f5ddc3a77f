#include "tessera/base/error.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/upgrade/steps.h"

namespace tessera::rewrite {
namespace {

/// Since version 18, a Split without sizes has an attribute for the number of its pieces.
void count_pieces(Graph&, Node* node, int64_t) {
  if (node->input(1)) return;
  node->set("num_outputs", static_cast<int64_t>(node->outputs.size()));
}

void state_axis(Graph&, Node* node, int64_t) {
  if (!node->find_attribute("axis")) node->set("axis", int64_t{-1});
}

/// Outside training only the first result is defined: before version 14, other results implied training, and since then
/// they do not exist. lower_batch_normalization handles training.
void drop_statistics(Graph& graph, Node* node, int64_t) {
  if (node->get_int("training_mode", 0) != 0) return;
  bool extra_results = false;
  for (size_t i = 1; i < node->outputs.size(); ++i) {
    Value* result = node->outputs[i];
    extra_results = extra_results || (result && (!result->uses.empty() || graph.is_output(result)));
  }
  if (extra_results)
    fail("upgrade",
         "{}: the training form of BatchNormalization before version 14 is not supported; export the model for a later "
         "one, or in evaluation mode (model.eval())",
         node->label());
  node->remove_attribute("training_mode");
  if (node->outputs.size() == 1) return;
  if (!node->outputs[0]) return graph.erase(node);
  Node* lean = graph.add_node("BatchNormalization", node->inputs, {node->outputs[0]->name}, "", node);
  lean->attributes = node->attributes;
  lean->name = node->name;
  lean->extra = node->extra;
  replace(graph, node->outputs[0], lean->outputs[0]);
  graph.erase(node);
}

void rename_interpolation(Graph&, Node* node, int64_t) {
  std::string mode = node->get_string("mode", "bilinear");
  node->set("mode", mode == "bilinear" ? std::string("linear") : mode == "bicubic" ? std::string("cubic") : mode);
}

void keep_pixel_origin(Graph&, Node* node, int64_t) {
  if (!node->find_attribute("coordinate_transformation_mode"))
    node->set("coordinate_transformation_mode", std::string("output_half_pixel"));
}

/// Before version 21 scale and bias were per group; since then they are per channel: [G] → [G, 1] → [G, C/G] → [C].
void spread_groups(Graph& graph, Node* node, int64_t) {
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
void move_dft_axis(Graph& graph, Node* node, int64_t) {
  int64_t axis = node->get_int("axis", 1);
  node->remove_attribute("axis");
  graph.set_input(node, 2, graph.constant_int64({axis}, true));
}

void rename_scatter(Graph&, Node* node, int64_t) {
  node->op_type = "ScatterElements";
}

}  // namespace

/// Every operator whose form changed between versions 13 and 28 in a way that a default does not cover.
std::vector<UpgradeStep> late_steps() {
  return {
      {"ReduceL1", 18, move_axes},
      {"ReduceL2", 18, move_axes},
      {"ReduceLogSum", 18, move_axes},
      {"ReduceLogSumExp", 18, move_axes},
      {"ReduceMax", 18, move_axes},
      {"ReduceMean", 18, move_axes},
      {"ReduceMin", 18, move_axes},
      {"ReduceProd", 18, move_axes},
      {"ReduceSumSquare", 18, move_axes},
      {"Split", 18, count_pieces},
      {"Softmax", kEveryVersion, state_axis},
      {"LogSoftmax", kEveryVersion, state_axis},
      {"Hardmax", kEveryVersion, state_axis},
      {"BatchNormalization", kEveryVersion, drop_statistics},
      {"GridSample", 20, rename_interpolation},
      {"RoiAlign", 16, keep_pixel_origin},
      {"GroupNormalization", 21, spread_groups},
      {"DFT", 20, move_dft_axis},
      {"Scatter", kEveryVersion, rename_scatter},
  };
}

}  // namespace tessera::rewrite

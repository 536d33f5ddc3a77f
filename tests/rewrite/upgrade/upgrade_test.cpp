#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/base/error.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::rewrite {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

OnnxModel model_of_opset(int64_t version) {
  OnnxModel model;
  model.opset_imports[""] = version;
  return model;
}

TEST(Upgrade, reduction_takes_its_axes_as_an_operand) {
  OnnxModel model = model_of_opset(13);
  Value* x = input(*model.graph, "x", {"batch", "8"});
  Value* y = node(*model.graph, "ReduceMean", {x}, "y", {{"axes", std::vector<int64_t>{-1}}});
  model.graph->outputs = {y};
  upgrade(model);
  EXPECT_EQ(model.opset(), kCanonicalOpset);
  EXPECT_FALSE(y->producer->find_attribute("axes"));
  EXPECT_THAT(y->producer->inputs.at(1)->data.to_int64(), ElementsAre(-1));
}

TEST(Upgrade, split_without_sizes_counts_its_pieces) {
  OnnxModel model = model_of_opset(13);
  Node* split = model.graph->add_node("Split", {input(*model.graph, "x", {"6"})}, {"a", "b", "c"});
  upgrade(model);
  EXPECT_EQ(split->get_int("num_outputs", 0), 3);
}

TEST(Upgrade, softmax_states_its_axis) {
  OnnxModel model = model_of_opset(13);
  Value* y = node(*model.graph, "Softmax", {input(*model.graph, "x", {"6"})});
  upgrade(model);
  EXPECT_EQ(y->producer->get_int("axis", 0), -1);
}

TEST(Upgrade, group_normalization_of_opset_18_gets_a_scale_per_channel) {
  OnnxModel model = model_of_opset(18);
  Value* x = input(*model.graph, "x", {"n", "8", "h"});
  Value* y =
      node(*model.graph, "GroupNormalization", {x, state(*model.graph, "scale", {2}), state(*model.graph, "bias", {2})},
           "y", {{"num_groups", int64_t{2}}});
  upgrade(model);
  EXPECT_THAT(chain_to(y->producer->inputs[1]), ElementsAre("Reshape", "Expand", "Reshape"));
  EXPECT_THAT(chain_to(y->producer->inputs[2]), ElementsAre("Reshape", "Expand", "Reshape"));
}

TEST(Upgrade, group_normalization_of_opset_21_stays) {
  OnnxModel model = model_of_opset(21);
  Value* x = input(*model.graph, "x", {"n", "8", "h"});
  node(*model.graph, "GroupNormalization", {x, state(*model.graph, "scale", {8}), state(*model.graph, "bias", {8})},
       "y", {{"num_groups", int64_t{2}}});
  upgrade(model);
  EXPECT_EQ(model.graph->nodes().size(), 1u);
}

TEST(Upgrade, batch_normalization_keeps_one_result) {
  OnnxModel model = model_of_opset(13);
  Graph& graph = *model.graph;
  Value* c = state(graph, "c", {4});
  Node* batch = graph.add_node("BatchNormalization", {input(graph, "x", {"n", "4"}), c, c, c, c},
                               {"y", "mean", "var", "saved_mean", "saved_var"});
  graph.outputs = {batch->outputs[0]};
  upgrade(model);
  ASSERT_EQ(graph.nodes().size(), 1u);
  EXPECT_EQ(graph.nodes()[0]->outputs.size(), 1u);
  EXPECT_EQ(graph.outputs[0]->name, "y");
}

// Since version 14 an attribute says so; before, results beside the first did.
TEST(Upgrade, batch_normalization_of_an_early_version_may_not_train) {
  for (const int version : {9, 15}) {
    OnnxModel model = model_of_opset(version);
    Graph& graph = *model.graph;
    Value* c = state(graph, "c", {4});
    std::vector<Attribute> attributes;
    if (version >= 14) attributes.push_back({"training_mode", int64_t{1}});
    Value* y = node(graph, "BatchNormalization", {input(graph, "x", {"n", "4"}), c, c, c, c}, "y", attributes);
    Value* mean = graph.add_value("mean", ValueKind::result, {DType::float32, {}});
    mean->producer = y->producer;
    y->producer->outputs.push_back(mean);
    graph.outputs = {y, mean};
    if (version >= 14) {
      upgrade(model);
      EXPECT_EQ(graph.nodes().front()->get_int("training_mode", 0), 1);
    } else {
      EXPECT_THAT([&] { upgrade(model); },
                  testing::ThrowsMessage<Error>(HasSubstr("[upgrade] BatchNormalization producing 'y'")));
    }
  }
}

TEST(Upgrade, attributes_newer_than_ours_are_neutral_or_lowered) {
  OnnxModel model = model_of_opset(25);
  Value* q = input(*model.graph, "q", {"b", "2", "s", "8"});
  Value* y = node(*model.graph, "Attention", {q, q, q}, "y", {{"left_window_size", int64_t{-1}}});
  upgrade(model);
  EXPECT_FALSE(y->producer->find_attribute("left_window_size"));
  y->producer->set("left_window_size", int64_t{128});
  upgrade(model);
  EXPECT_TRUE(y->producer->find_attribute("left_window_size"));
  Value* range = node(*model.graph, "Range", {q, q, q}, "r", {{"stash_type", int64_t{10}}});
  EXPECT_THAT([&] { upgrade(model); }, testing::ThrowsMessage<Error>(HasSubstr("stash_type is newer")));
  EXPECT_TRUE(range);
}

/// Infers the upgraded graph, and folds its Shape arithmetic.
std::map<std::string, int> settled(OnnxModel& model) {
  upgrade(model);
  lower_losses(model);
  fold(model);
  canonicalize(model);
  return histogram(*model.graph);
}

TEST(UpgradeEarly, softmax_over_the_last_dimension_sees_no_matrix) {
  OnnxModel model = model_of_opset(11);
  Value* x = input(*model.graph, "x", {"b", "4", "8"});
  model.graph->outputs = {node(*model.graph, "Softmax", {x}, "y", {{"axis", int64_t{2}}})};
  EXPECT_THAT(settled(model), ElementsAre(testing::Pair("Softmax", 1)));
  EXPECT_EQ(model.graph->outputs[0]->name, "y");
  EXPECT_EQ(model.graph->outputs[0]->producer->inputs[0], x);
}

TEST(UpgradeEarly, softmax_over_several_dimensions_sees_a_matrix) {
  OnnxModel model = model_of_opset(9);
  Value* x = input(*model.graph, "x", {"b", "4", "8"});
  model.graph->outputs = {node(*model.graph, "Softmax", {x}, "y")};
  EXPECT_THAT(settled(model), ElementsAre(testing::Pair("Reshape", 2), testing::Pair("Softmax", 1)));
  EXPECT_EQ(to_string(model.graph->outputs[0]->shape()), "[b, 4, 8]");
}

TEST(UpgradeEarly, operands_align_from_the_axis_that_was_asked_for) {
  OnnxModel model = model_of_opset(6);
  Value* x = input(*model.graph, "x", {"n", "3", "8", "8"});
  Value* y = node(*model.graph, "Add", {x, state(*model.graph, "bias", {3})}, "y",
                  {{"axis", int64_t{1}}, {"broadcast", int64_t{1}}});
  model.graph->outputs = {y};
  settled(model);
  EXPECT_EQ(to_string(y->producer->inputs[1]->shape()), "[3, 1, 1]");
}

TEST(UpgradeEarly, slopes_are_for_channels) {
  OnnxModel model = model_of_opset(6);
  Value* x = input(*model.graph, "x", {"n", "3", "8"});
  Value* y = node(*model.graph, "PRelu", {x, state(*model.graph, "slope", {3})}, "y");
  model.graph->outputs = {y};
  settled(model);
  EXPECT_EQ(to_string(y->producer->inputs[1]->shape()), "[3, 1]");
}

TEST(UpgradeEarly, attributes_become_operands) {
  OnnxModel model = model_of_opset(9);
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"8"});
  Value* slice =
      node(graph, "Slice", {x}, "a", {{"starts", std::vector<int64_t>{1}}, {"ends", std::vector<int64_t>{5}}});
  Value* column = node(graph, "Unsqueeze", {slice}, "b", {{"axes", std::vector<int64_t>{0}}});
  Value* clip = node(graph, "Clip", {column}, "c", {{"max", 6.f}});
  Value* pad = node(graph, "Pad", {clip}, "d", {{"pads", std::vector<int64_t>{0, 1, 0, 2}}, {"value", 2.f}});
  Value* sum = node(graph, "ReduceSum", {pad}, "e", {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}});
  Node* top = graph.add_node("TopK", {sum}, {"values", "indices"});
  top->attributes = {{"k", int64_t{1}}};
  graph.outputs = {top->outputs[0]};
  upgrade(model);
  fold(model);
  EXPECT_EQ(to_string(column->shape()), "[1, 4]");
  EXPECT_FALSE(clip->producer->input(1));
  EXPECT_EQ(scalar_of(clip->producer->input(2)), 6);
  EXPECT_EQ(to_string(pad->shape()), "[1, 7]");
  EXPECT_EQ(scalar_of(pad->producer->input(2)), 2);
  EXPECT_EQ(to_string(top->outputs[0]->shape()), "[1]");
}

TEST(UpgradeEarly, upsample_is_a_resize) {
  OnnxModel model = model_of_opset(7);
  Value* x = input(*model.graph, "x", {"1", "1", "2", "2"});
  Value* y = node(*model.graph, "Upsample", {x}, "y", {{"scales", std::vector<float>{1, 1, 2, 3}}});
  model.graph->outputs = {y};
  settled(model);
  EXPECT_EQ(y->producer->op_type, "Resize");
  EXPECT_EQ(y->producer->get_string("coordinate_transformation_mode", ""), "asymmetric");
  EXPECT_EQ(to_string(y->shape()), "[1, 1, 4, 6]");
}

TEST(UpgradeEarly, training_mode_is_refused) {
  for (const char* type : {"Dropout", "BatchNormalization"}) {
    OnnxModel model = model_of_opset(6);
    node(*model.graph, type, {input(*model.graph, "x", {"4", "2"})}, "y");
    EXPECT_THAT([&] { upgrade(model); }, testing::ThrowsMessage<Error>(HasSubstr("in training mode")));
  }
}

TEST(LowerLosses, an_ignored_class_weighs_nothing) {
  OnnxModel model = model_of_opset(13);
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"n", "5", "d"});
  Value* target = input(graph, "target", {"n", "d"}, DType::int64);
  Node* loss = graph.add_node("SoftmaxCrossEntropyLoss", {x, target}, {"loss", "log_prob"});
  loss->attributes = {{"ignore_index", int64_t{-1}}};
  graph.outputs = {loss->outputs[0], loss->outputs[1]};
  auto counts = settled(model);
  EXPECT_EQ(counts["LogSoftmax"], 1);
  EXPECT_EQ(counts["GatherElements"], 1);
  EXPECT_EQ(counts["Equal"], 1);
  EXPECT_EQ(counts["Div"], 1);
  EXPECT_EQ(graph.outputs[0]->name, "loss");
  EXPECT_EQ(graph.outputs[0]->rank(), 0u);
  EXPECT_EQ(graph.outputs[1]->name, "log_prob");
}

TEST(Upgrade, nodes_out_of_functions_are_upgraded_from_their_own_version) {
  OnnxModel model = model_of_opset(20);
  Value* x = input(*model.graph, "x", {"4"});
  Value* y = node(*model.graph, "ReduceMean", {x}, "y",
                  {{"axes", std::vector<int64_t>{0}}, {std::string(kOpsetStamp), int64_t{13}}});
  upgrade(model);
  EXPECT_EQ(y->producer->inputs.size(), 2u);
  EXPECT_FALSE(y->producer->find_attribute(kOpsetStamp));
}

}  // namespace
}  // namespace tessera::rewrite

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/base/error.h"
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

TEST(Upgrade, batch_normalization_in_training_mode_is_refused) {
  OnnxModel model = model_of_opset(15);
  Value* c = state(*model.graph, "c", {4});
  node(*model.graph, "BatchNormalization", {input(*model.graph, "x", {"n", "4"}), c, c, c, c}, "y",
       {{"training_mode", int64_t{1}}});
  EXPECT_THAT([&] { upgrade(model); },
              testing::ThrowsMessage<Error>(HasSubstr("[upgrade] BatchNormalization producing 'y'")));
}

TEST(Upgrade, attributes_newer_than_ours_must_be_neutral) {
  OnnxModel model = model_of_opset(25);
  Value* q = input(*model.graph, "q", {"b", "2", "s", "8"});
  Value* y = node(*model.graph, "Attention", {q, q, q}, "y", {{"left_window_size", int64_t{-1}}});
  upgrade(model);
  EXPECT_FALSE(y->producer->find_attribute("left_window_size"));
  y->producer->set("left_window_size", int64_t{128});
  EXPECT_THAT([&] { upgrade(model); }, testing::ThrowsMessage<Error>(HasSubstr("left_window_size is newer")));
}

TEST(Upgrade, function_bodies_are_upgraded_from_their_own_version) {
  OnnxModel model = model_of_opset(20);
  Function function{"local", "mean", "", std::make_unique<Graph>(), {}, {}, {{"", 13}}, ""};
  Value* y =
      node(*function.body, "ReduceMean", {input(*function.body, "x", {"4"})}, "y", {{"axes", std::vector<int64_t>{0}}});
  model.functions.push_back(std::move(function));
  upgrade(model);
  EXPECT_EQ(y->producer->inputs.size(), 2u);
  EXPECT_EQ(model.functions[0].opset_imports[""], kCanonicalOpset);
}

}  // namespace
}  // namespace tessera::rewrite

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "rewrite/build.h"
#include "tessera/base/error.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::rewrite {
namespace {

using Histogram = std::map<std::string, int>;

Histogram of_padded(std::vector<int64_t> pads) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"5", "n"});
  graph.outputs = {
      node(graph, "Pad", {x, graph.constant_int64(std::move(pads))}, "y", {{"mode", std::string("wrap")}})};
  rewrite_model(model);
  return histogram(graph);
}

TEST(LowerPad, that_wraps_around_is_a_concat_of_slices) {
  EXPECT_EQ(of_padded({2, 0, 5, 0}), (Histogram{{"Concat", 1}, {"Slice", 1}})) << "five elements are all";
  EXPECT_EQ(of_padded({2, 0, 1, 0}), (Histogram{{"Concat", 1}, {"Slice", 2}}));
  EXPECT_EQ(of_padded({6, 0, 0, 0}), (Histogram{{"Pad", 1}})) << "elements are repeated more than once";
  EXPECT_EQ(of_padded({-1, 0, 1, 0}), (Histogram{{"Pad", 1}}));
  EXPECT_EQ(of_padded({0, 1, 0, 0}), (Histogram{{"Pad", 1}})) << "there may be no element to repeat";
}

Node* attention_in_windows(OnnxModel& model, const char* keys, std::vector<Attribute> attributes) {
  Graph& graph = *model.graph;
  Value* q = input(graph, "q", {"b", "4", "s", "8"});
  Value* k = input(graph, "k", {"b", "4", keys, "8"});
  graph.outputs = {node(graph, "Attention", {q, k, k}, "y", std::move(attributes))};
  rewrite_model(model);
  return graph.outputs[0]->producer;
}

TEST(LowerAttention, keeps_windows_where_keys_are_at_the_positions_of_queries) {
  const Attribute left{"left_window_size", int64_t{3}}, right{"right_window_size", int64_t{1}};
  OnnxModel near;
  Node* kept = attention_in_windows(near, "s", {left, right});
  EXPECT_EQ(kept->get_int("left_window_size", -1), 3);
  EXPECT_FALSE(kept->input(3));
  spell_out(*near.graph);
  const Node* spelt = near.graph->outputs[0]->producer;
  EXPECT_TRUE(spelt->is("Attention"));
  EXPECT_FALSE(spelt->find_attribute("left_window_size")) << "the opset that we write has no windows";
  EXPECT_TRUE(spelt->input(3));
  for (const bool other_keys : {false, true}) {
    OnnxModel model;
    const Node* masked =
        attention_in_windows(model, other_keys ? "t" : "s", other_keys ? std::vector{left, right} : std::vector{left});
    EXPECT_FALSE(masked->find_attribute("left_window_size"));
    EXPECT_TRUE(masked->input(3));
  }
}

// The standard adds columns to a mask that has too few, also to one with a single one, and hides their keys.
TEST(LowerAttention, hides_keys_behind_a_mask_of_one_column) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* q = input(graph, "q", {"1", "1", "2", "4"});
  Value* k = input(graph, "k", {"1", "1", "3", "4"});
  graph.outputs = {
      node(graph, "Attention", {q, k, k, input(graph, "m", {"2", "1"})}, "y", {{"left_window_size", int64_t{5}}})};
  rewrite_model(model);
  EXPECT_EQ(histogram(graph)["Pad"], 1);
}

TEST(LowerAttention, refuses_a_mask_without_keys) {
  const Attribute left{"left_window_size", int64_t{3}}, right{"right_window_size", int64_t{1}};
  for (const std::vector<Attribute>& windows : {std::vector<Attribute>{}, {left}, {right}, {left, right}}) {
    OnnxModel model;
    Graph& graph = *model.graph;
    Value* q = input(graph, "q", {"b", "4", "s", "8"});
    Node* attention = graph.add_node("Attention", {q, q, q, input(graph, "m", {})}, {"y"});
    for (const Attribute& window : windows) attention->set(window.name, window.value);
    graph.outputs = {attention->outputs[0]};
    try {
      rewrite_model(model);
      ADD_FAILURE() << windows.size() << " windows";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("its mask is a scalar; it needs a dimension of keys"));
    }
  }
}

TEST(LowerAttention, leaves_out_windows_that_bound_nothing) {
  for (const int64_t all : {int64_t{-1}, int64_t{-7}, int64_t{1} << 31, std::numeric_limits<int64_t>::max()})
    for (const char* side : {"left_window_size", "right_window_size"}) {
      OnnxModel model;
      const Node* made = attention_in_windows(model, "t", {{side, all}});
      EXPECT_FALSE(made->find_attribute(side)) << all;
      EXPECT_FALSE(made->input(3)) << all;
    }
}

}  // namespace
}  // namespace tessera::rewrite

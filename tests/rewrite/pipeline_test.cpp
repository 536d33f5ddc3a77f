#include "tessera/rewrite/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

using testing::Contains;
using Histogram = std::map<std::string, int>;

/// y = x·sigmoid(x), the sigmoid being called "gate".
OnnxModel swish() {
  OnnxModel model;
  model.opset_imports[""] = 20;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"batch", "8"});
  graph.outputs = {node(graph, "Mul", {x, node(graph, "Sigmoid", {x}, "gate")}, "y")};
  return model;
}

TEST(Pipeline, raises_what_nobody_asks_for) {
  OnnxModel model = swish();
  rewrite_model(model);
  EXPECT_EQ(histogram(*model.graph), (Histogram{{"Swish", 1}}));
  EXPECT_EQ(model.opset(), kCanonicalOpset);
}

TEST(Pipeline, barrier_survives_by_name_and_is_no_output_afterwards) {
  OnnxModel model = swish();
  rewrite_model(model, {.barriers = {"gate", "not in the model"}, .observe = {}});
  EXPECT_EQ(histogram(*model.graph), (Histogram{{"Sigmoid", 1}, {"Mul", 1}}));
  EXPECT_TRUE(model.graph->find("gate"));
  EXPECT_EQ(model.graph->outputs.size(), 1u);
}

TEST(Pipeline, barrier_inside_a_function_survives_inlining) {
  OnnxModel model = swish();
  Function function{"local", "act", "", swish().graph, {}, {}, {{"", 20}}, ""};
  model.functions.push_back(std::move(function));
  Node* call = model.graph->add_node("act", {model.graph->outputs[0]}, {"z"}, "local");
  model.graph->outputs = {call->outputs[0]};
  rewrite_model(model, {.barriers = {"act/gate"}, .observe = {}});
  EXPECT_EQ(histogram(*model.graph), (Histogram{{"Swish", 1}, {"Sigmoid", 1}, {"Mul", 1}}));
}

TEST(Pipeline, observer_sees_every_pass) {
  OnnxModel model = swish();
  std::vector<std::string> seen;
  rewrite_model(model,
                {.barriers = {}, .observe = [&](std::string_view pass, const OnnxModel&) { seen.emplace_back(pass); }});
  ASSERT_EQ(seen.size(), passes().size());
  EXPECT_EQ(seen.front(), "upgrade");
  EXPECT_THAT(seen, Contains("raise_attention"));
}

TEST(UnifyExtents, compound_extent_takes_the_symbol_beside_it) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* positions = input(graph, "positions", {"1", "min(128, s)"});
  Value* x = input(graph, "x", {"b", "s"});
  graph.outputs = {node(graph, "Add", {x, node(graph, "Neg", {positions}, "negated")}, "y")};
  fold(model);
  unify_extents(model);
  EXPECT_EQ(to_string(graph.find("negated")->shape()), "[1, s]");
  EXPECT_EQ(to_string(graph.outputs[0]->shape()), "[b, s]");
}

TEST(UnifyExtents, contraction_unifies_symbols_but_broadcasting_does_not) {
  for (bool contraction : {true, false}) {
    OnnxModel model;
    Graph& graph = *model.graph;
    Value* a = input(graph, "a", {"m", "k"});
    Value* b = input(graph, "b", contraction ? std::vector<std::string>{"j", "n"} : std::vector<std::string>{"m", "j"});
    graph.outputs = {node(graph, contraction ? "MatMul" : "Add", {a, b}, "y")};
    fold(model);
    unify_extents(model);
    EXPECT_EQ(a->shape()[1] == b->shape()[contraction ? 0 : 1], contraction);
  }
}

TEST(MergeEqual, equal_nodes_on_equal_operands_become_one) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"4"});
  auto half = [&] { return node(graph, "Cos", {node(graph, "Mul", {x, number(graph, 0.5)})}); };
  Value* other = node(graph, "Mul", {x, number(graph, 0.25)});
  graph.outputs = {node(graph, "Sum", {half(), half(), other}, "y")};
  fold(model);
  merge_equal(model);
  graph.verify("test");
  EXPECT_EQ(histogram(graph), (Histogram{{"Mul", 2}, {"Cos", 1}, {"Sum", 1}}));
}

}  // namespace
}  // namespace tessera::rewrite

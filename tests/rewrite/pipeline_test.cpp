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

TEST(Pipeline, candidate_is_a_barrier_once_its_type_is_known_or_never) {
  for (size_t rank : {1, 2}) {
    OnnxModel model = swish();
    RewriteOptions options;
    options.candidates = {"gate"};
    options.is_barrier = [&](const Value& value) { return value.rank() == rank; };
    rewrite_model(model, options);
    EXPECT_EQ(model.graph->find("gate") != nullptr, swish().graph->inputs[0]->rank() == rank) << rank;
    EXPECT_EQ(model.graph->outputs.size(), 1u);
  }
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
  EXPECT_EQ(seen.front(), "inline_functions");
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

TEST(Pipeline, attribute_that_a_call_gives_is_known_when_its_operator_is_upgraded) {
  OnnxModel model;
  model.opset_imports[""] = 20;
  Function mean{"local", "mean", "", std::make_unique<Graph>(), {"axes"}, {}, {{"", 13}}, ""};
  mean.body->outputs = {node(*mean.body, "ReduceMean", {mean.body->add_input("x", {})}, "y",
                             {{"axes", AttributeReference{"axes", 7}}, {"keepdims", int64_t{0}}})};
  Function outer{"local", "outer", "", std::make_unique<Graph>(), {"dims"}, {}, {{"", 20}}, ""};
  Node* inner = outer.body->add_node("mean", {outer.body->add_input("x", {})}, {"y"}, "local");
  inner->set("axes", AttributeReference{"dims", 7});
  outer.body->outputs = inner->outputs;
  model.functions.push_back(std::move(mean));
  model.functions.push_back(std::move(outer));
  Node* call = model.graph->add_node("outer", {input(*model.graph, "x", {"2", "3"})}, {"y"}, "local");
  call->set("dims", std::vector<int64_t>{1});
  model.graph->outputs = call->outputs;
  rewrite_model(model);
  EXPECT_EQ(to_string(model.graph->outputs[0]->shape()), "[2]");
}

TEST(Pipeline, product_of_thousands_of_factors_is_walked_once) {
  OnnxModel model;
  model.opset_imports[""] = 20;
  Graph& graph = *model.graph;
  Value* product = input(graph, "x0", {"4"});
  for (int i = 1; i < 50'000; ++i)
    product = node(graph, "Mul", {product, input(graph, "x" + std::to_string(i % 8), {"4"})});
  graph.outputs = {product};
  fold(model);
  raise_activation(model);
  EXPECT_EQ(histogram(graph)["Mul"], 49'999);
}

TEST(UnifyExtents, broadcast_equates_only_what_cannot_be_one_alone) {
  for (auto [extent, together] : std::vector<std::pair<const char*, bool>>{
           {"min(128, s)", true}, {"s + 1", false}, {"m - 1", false}, {"min(128, m)", false}}) {
    OnnxModel model;
    Graph& graph = *model.graph;
    Value* y = node(graph, "Neg", {input(graph, "y", {extent})}, "negated");
    graph.outputs = {node(graph, "Add", {input(graph, "x", {"s"}), y})};
    fold(model);
    unify_extents(model);
    EXPECT_EQ(y->shape()[0] == Expr::symbol("s"), together) << extent;
  }
}

TEST(UnifyExtents, chain_of_products_gets_one_name) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* product = input(graph, "a0", {"k0", "k0"});
  for (int i = 1; i < 300; ++i) {
    const std::string k = "k" + std::to_string(i);
    product = node(graph, "MatMul", {product, input(graph, "a" + std::to_string(i), {k, k})});
  }
  graph.outputs = {product};
  fold(model);
  unify_extents(model);
  for (const Value* operand : graph.inputs) EXPECT_EQ(operand->shape(), graph.inputs[0]->shape());
}

TEST(Pipeline, integer_constants_may_overflow) {
  for (const char* type : {"Mul", "Add", "Sub"}) {
    OnnxModel model;
    model.opset_imports[""] = 20;
    Graph& graph = *model.graph;
    Value* product = node(graph, type, {ints(graph, {INT64_MIN}), ints(graph, {type[0] == 'A' ? -1 : 4})});
    graph.outputs = {node(graph, "Add", {product, input(graph, "x", {"1"}, DType::int64)}, "y")};
    rewrite_model(model);
    EXPECT_EQ(histogram(graph)[type], type[0] == 'A' ? 2 : 1);
  }
}

}  // namespace
}  // namespace tessera::rewrite

#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

using Histogram = std::map<std::string, int>;

class RaiseActivation : public testing::Test {
 protected:
  Value* mul(Value* a, Value* b) { return node(graph, "Mul", {a, b}); }
  Value* num(double value) { return number(graph, value); }
  Value* erf_factor(Value* argument) { return node(graph, "Add", {node(graph, "Erf", {argument}), num(1)}); }
  Value* over_root_2() { return node(graph, "Div", {x, num(1.4142135381698608)}); }

  Histogram raised(Value* output) {
    graph.outputs = {output};
    fold(model);
    raise_activation(model);
    graph.verify("test");
    return histogram(graph);
  }

  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"batch", "8"});
};

TEST_F(RaiseActivation, gelu_with_the_half_last) {
  EXPECT_EQ(raised(mul(mul(x, erf_factor(over_root_2())), num(0.5))), (Histogram{{"Gelu", 1}}));
  EXPECT_EQ(graph.outputs[0]->producer->get_string("approximate", ""), "none");
}

TEST_F(RaiseActivation, gelu_with_the_half_beside_erf) {
  EXPECT_EQ(raised(mul(x, mul(num(0.5), erf_factor(mul(x, num(0.70710678)))))), (Histogram{{"Gelu", 1}}));
}

TEST_F(RaiseActivation, gelu_with_the_half_beside_x_or_divided_by_two) {
  Value* first = mul(mul(x, num(0.5)), erf_factor(over_root_2()));
  Value* second = node(graph, "Div", {mul(x, erf_factor(over_root_2())), num(2)});
  EXPECT_EQ(raised(node(graph, "Add", {first, second})), (Histogram{{"Gelu", 2}, {"Add", 1}}));
}

TEST_F(RaiseActivation, gated_gelu_keeps_its_gate) {
  Value* gate = input(graph, "gate", {"batch", "8"});
  EXPECT_EQ(raised(mul(mul(mul(x, num(0.5)), erf_factor(over_root_2())), gate)), (Histogram{{"Gelu", 1}, {"Mul", 1}}));
}

TEST_F(RaiseActivation, gelu_by_tanh_with_a_power) {
  Value* cubic = node(graph, "Add", {x, mul(node(graph, "Pow", {x, num(3)}), num(0.044715))});
  Value* factor = node(graph, "Add", {node(graph, "Tanh", {mul(cubic, num(0.7978845834732056))}), num(1)});
  EXPECT_EQ(raised(mul(mul(x, num(0.5)), factor)), (Histogram{{"Gelu", 1}}));
  EXPECT_EQ(graph.outputs[0]->producer->get_string("approximate", ""), "tanh");
}

TEST_F(RaiseActivation, gelu_by_tanh_with_x_taken_out) {
  Value* inner = node(graph, "Add", {num(1), mul(mul(num(0.044715), x), x)});
  Value* argument = mul(mul(x, num(0.7978845608)), inner);
  Value* factor = node(graph, "Add", {num(1), node(graph, "Tanh", {argument})});
  EXPECT_EQ(raised(mul(num(0.5), mul(x, factor))), (Histogram{{"Gelu", 1}}));
}

TEST_F(RaiseActivation, other_constants_make_no_gelu) {
  EXPECT_FALSE(raised(mul(mul(x, erf_factor(node(graph, "Div", {x, num(1.5)}))), num(0.5))).contains("Gelu"));
}

TEST_F(RaiseActivation, erf_of_something_else_makes_no_gelu) {
  Value* other = input(graph, "other", {"batch", "8"});
  Value* argument = node(graph, "Div", {other, num(1.4142135381698608)});
  EXPECT_FALSE(raised(mul(mul(x, erf_factor(argument)), num(0.5))).contains("Gelu"));
}

TEST_F(RaiseActivation, swish_and_its_slope) {
  Value* plain = mul(x, node(graph, "Sigmoid", {x}));
  Value* steep = mul(node(graph, "Sigmoid", {mul(x, num(1.702))}), x);
  EXPECT_EQ(raised(node(graph, "Add", {plain, steep})), (Histogram{{"Swish", 2}, {"Add", 1}}));
  EXPECT_EQ(graph.outputs[0]->producer->inputs[0]->producer->get_float("alpha", 0), 1.0f);
  EXPECT_EQ(graph.outputs[0]->producer->inputs[1]->producer->get_float("alpha", 0), 1.702f);
}

TEST_F(RaiseActivation, sigmoid_that_is_an_output_blocks) {
  Value* gate = node(graph, "Sigmoid", {x}, "gate");
  Value* y = mul(x, gate);
  graph.outputs = {y, gate};
  fold(model);
  raise_activation(model);
  EXPECT_EQ(histogram(graph), (Histogram{{"Mul", 1}, {"Sigmoid", 1}}));
}

TEST_F(RaiseActivation, constants_that_widen_the_result_are_no_part_of_it) {
  Value* half = graph.add_constant("half", Tensor::of<float>(DType::float32, {1, 1, 1}, {0.5f}));
  EXPECT_EQ(raised(mul(mul(x, half), erf_factor(over_root_2())))["Gelu"], 0);
  EXPECT_EQ(to_string(graph.outputs[0]->shape()), "[1, batch, 8]");
  Value* scale = graph.add_constant("scale", Tensor::of<float>(DType::float32, {1, 1, 1}, {2}));
  EXPECT_EQ(raised(mul(x, node(graph, "Sigmoid", {mul(x, scale)})))["Swish"], 0);
  EXPECT_EQ(to_string(graph.outputs[0]->shape()), "[1, batch, 8]");
}

}  // namespace
}  // namespace tessera::rewrite

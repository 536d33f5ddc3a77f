#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

using Histogram = std::map<std::string, int>;

Histogram raised(OnnxModel& model, Value* output) {
  model.graph->outputs = {output};
  fold(model);
  raise_normalization(model);
  model.graph->verify("test");
  return histogram(*model.graph);
}

Value* mean(Graph& graph, Value* x) {
  return node(graph, "ReduceMean", {x, ints(graph, {-1})});
}

Value* inverse_root(Graph& graph, Value* x) {
  return node(graph, "Reciprocal", {node(graph, "Sqrt", {node(graph, "Add", {x, number(graph, 1e-5)})})});
}

TEST(RaiseNormalization, layer_normalization_by_division) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"b", "s", "8"});
  Value* centered = node(graph, "Sub", {x, mean(graph, x)});
  Value* variance = mean(graph, node(graph, "Pow", {centered, number(graph, 2)}));
  Value* deviation = node(graph, "Sqrt", {node(graph, "Add", {number(graph, 1e-12), variance})});
  Value* scaled = node(graph, "Mul", {node(graph, "Div", {centered, deviation}), state(graph, "w", {8})});
  EXPECT_EQ(raised(model, node(graph, "Add", {state(graph, "b", {8}), scaled}, "y")),
            (Histogram{{"LayerNormalization", 1}}));
  const Node* norm = graph.outputs[0]->producer;
  EXPECT_EQ(norm->inputs, (std::vector<Value*>{x, graph.find("w"), graph.find("b")}));
  EXPECT_EQ(norm->get_int("axis", 0), -1);
  EXPECT_EQ(norm->get_float("epsilon", 0), 1e-12f);
  EXPECT_EQ(graph.outputs[0]->name, "y");
}

TEST(RaiseNormalization, layer_normalization_without_parameters_scales_by_one) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"b", "8"});
  Value* centered = node(graph, "Sub", {x, mean(graph, x)});
  Value* variance = mean(graph, node(graph, "Mul", {centered, centered}));
  EXPECT_EQ(raised(model, node(graph, "Mul", {inverse_root(graph, variance), centered}, "y")),
            (Histogram{{"LayerNormalization", 1}, {"Expand", 1}}));
}

TEST(RaiseNormalization, rms_normalization_with_the_weight_on_either_side) {
  for (bool weight_first : {true, false}) {
    OnnxModel model;
    Graph& graph = *model.graph;
    Value* x = input(graph, "x", {"b", "s", "8"});
    Value* normal =
        node(graph, "Mul", {x, inverse_root(graph, mean(graph, node(graph, "Pow", {x, number(graph, 2)})))});
    Value* weight = state(graph, "w", {8});
    Value* y = node(graph, "Mul", weight_first ? std::vector{weight, normal} : std::vector{normal, weight}, "y");
    EXPECT_EQ(raised(model, y), (Histogram{{"RMSNormalization", 1}}));
    EXPECT_EQ(graph.outputs[0]->producer->inputs, (std::vector<Value*>{x, weight}));
  }
}

TEST(RaiseNormalization, casts_around_the_normalization_are_its_stash_type) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"b", "8"}, DType::bfloat16);
  Value* weight = graph.add_state("w", Tensor::zeros(DType::bfloat16, {8}));
  Value* wide = node(graph, "Cast", {x}, "", {{"to", int64_t{1}}});
  Value* normal =
      node(graph, "Mul", {wide, inverse_root(graph, mean(graph, node(graph, "Pow", {wide, number(graph, 2)})))});
  Value* narrow = node(graph, "Cast", {normal}, "", {{"to", int64_t{16}}});
  EXPECT_EQ(raised(model, node(graph, "Mul", {weight, narrow}, "y")), (Histogram{{"RMSNormalization", 1}}));
  EXPECT_EQ(graph.outputs[0]->producer->inputs[0], x);
  EXPECT_EQ(graph.outputs[0]->dtype(), DType::bfloat16);
}

TEST(RaiseNormalization, mean_over_a_leading_dimension_is_no_normalization) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"b", "8"});
  Value* square = node(graph, "ReduceMean", {node(graph, "Mul", {x, x}), ints(graph, {0})});
  EXPECT_FALSE(raised(model, node(graph, "Mul", {x, inverse_root(graph, square)}, "y")).contains("RMSNormalization"));
}

TEST(RaiseNormalization, variance_that_is_an_output_blocks) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"b", "8"});
  Value* square = mean(graph, node(graph, "Mul", {x, x}));
  Value* y = node(graph, "Mul", {x, inverse_root(graph, square)}, "y");
  graph.outputs = {y, square};
  fold(model);
  raise_normalization(model);
  EXPECT_FALSE(histogram(graph).contains("RMSNormalization"));
}

TEST(RaiseNormalization, epsilon_that_widens_the_result_is_no_part_of_it) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"b", "8"});
  Value* epsilon = graph.add_constant("epsilon", Tensor::of<float>(DType::float32, {1, 1, 1}, {1e-5f}));
  Value* root = node(graph, "Sqrt", {node(graph, "Add", {mean(graph, node(graph, "Mul", {x, x})), epsilon})});
  EXPECT_EQ(raised(model, node(graph, "Div", {x, root}, "y"))["RMSNormalization"], 0);
  EXPECT_EQ(to_string(graph.outputs[0]->shape()), "[1, b, 8]");
}

}  // namespace
}  // namespace tessera::rewrite

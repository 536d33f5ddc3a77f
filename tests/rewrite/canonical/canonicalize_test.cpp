#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

using testing::ElementsAre;
using Histogram = std::map<std::string, int>;

/// Types the model, simplifies it, and checks its links.
void simplify(OnnxModel& model, Value* output) {
  model.graph->outputs = {output};
  fold(model);
  canonicalize(model);
  model.graph->verify("test");
}

TEST(Canonicalize, gemm_with_a_bias_becomes_product_and_sum) {
  OnnxModel model;
  Graph& graph = *model.graph;
  simplify(model, node(graph, "Gemm",
                       {input(graph, "x", {"batch", "8"}), state(graph, "w", {8, 4}), state(graph, "c", {4})}, "y"));
  EXPECT_THAT(chain_to(graph.outputs[0]), ElementsAre("Add", "MatMul"));
  EXPECT_EQ(graph.outputs[0]->name, "y");
}

// The gradient of a weight that is used transposed.
TEST(Canonicalize, a_transposed_product_is_the_product_of_turned_operands) {
  const auto nodes_of = [](bool left, bool right, std::vector<int64_t> turn, bool has_other_use) {
    OnnxModel model;
    Graph& graph = *model.graph;
    const auto operand = [&](const char* name, bool turned, std::vector<std::string> dims) {
      if (!turned) return input(graph, name, dims);
      std::swap(dims[1], dims[2]);
      return node(graph, "Transpose", {input(graph, name, dims)}, "", {{"perm", std::vector<int64_t>{0, 2, 1}}});
    };
    Value* product =
        node(graph, "MatMul", {operand("a", left, {"b", "m", "k"}), operand("c", right, {"b", "k", "n"})}, "p");
    Value* result = node(graph, "Transpose", {product}, "y", {{"perm", std::move(turn)}});
    if (has_other_use) result = node(graph, "Concat", {result, product}, "z", {{"axis", int64_t{0}}});
    simplify(model, result);
    return histogram(graph);
  };
  const std::vector<int64_t> turn = {0, 2, 1};
  EXPECT_EQ(nodes_of(true, false, turn, false), (Histogram{{"MatMul", 1}, {"Transpose", 1}}));
  EXPECT_EQ(nodes_of(false, true, turn, false), (Histogram{{"MatMul", 1}, {"Transpose", 1}}));
  EXPECT_EQ(nodes_of(true, true, turn, false), (Histogram{{"MatMul", 1}}));
  EXPECT_EQ(nodes_of(false, false, turn, false), (Histogram{{"MatMul", 1}, {"Transpose", 1}}));
  EXPECT_EQ(nodes_of(true, false, {1, 0, 2}, false), (Histogram{{"MatMul", 1}, {"Transpose", 2}}));
  EXPECT_EQ(nodes_of(true, false, {2, 1, 0}, false), (Histogram{{"MatMul", 1}, {"Transpose", 2}}));
}

TEST(Canonicalize, gemm_of_a_transposed_weight_stays_without_its_bias) {
  OnnxModel model;
  Graph& graph = *model.graph;
  simplify(model,
           node(graph, "Gemm", {input(graph, "x", {"batch", "8"}), state(graph, "w", {4, 8}), state(graph, "c", {4})},
                "y", {{"transB", int64_t{1}}}));
  EXPECT_THAT(chain_to(graph.outputs[0]), ElementsAre("Add", "Gemm"));
  EXPECT_EQ(graph.outputs[0]->producer->inputs[0]->producer->inputs.size(), 2u);
}

TEST(Canonicalize, gemm_scales_product_and_bias) {
  OnnxModel model;
  Graph& graph = *model.graph;
  simplify(model,
           node(graph, "Gemm", {input(graph, "x", {"8", "batch"}), state(graph, "w", {8, 4}), state(graph, "c", {4})},
                "y", {{"transA", int64_t{1}}, {"alpha", 0.5f}, {"beta", 2.0f}}));
  EXPECT_THAT(chain_to(graph.outputs[0]), ElementsAre("Add", "Mul", "MatMul", "Transpose"));
  EXPECT_EQ(histogram(graph), (Histogram{{"Add", 1}, {"Mul", 2}, {"MatMul", 1}, {"Transpose", 1}}));
}

TEST(Canonicalize, dimensions_in_front_of_a_transpose_are_divided_before_it) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"batch", "4", "sequence", "8"});
  const Expr batch = Expr::symbol("batch"), sequence = Expr::symbol("sequence");
  Value* flat = node(graph, "Reshape", {x, graph.add_expression("", {4 * batch, sequence, 8})});
  Value* turned = node(graph, "Transpose", {flat}, "", {{"perm", std::vector<int64_t>{0, 2, 1}}});
  simplify(model, node(graph, "Reshape", {turned, graph.add_expression("", {batch, 4, 8, sequence})}, "y"));
  EXPECT_THAT(chain_to(graph.outputs[0]), ElementsAre("Transpose"));
  EXPECT_THAT(graph.outputs[0]->producer->get_ints("perm"), ElementsAre(0, 1, 3, 2));
}

TEST(Canonicalize, dimensions_that_a_transpose_moves_are_divided_after_it) {
  struct Case {
    std::vector<int64_t> permutation, result;
  };
  for (const Case& one : {Case{{1, 0, 2}, {6, 2, 4, 5}}, Case{{0, 2, 1}, {8, 5, 2, 3}}, Case{{0, 2, 1}, {4, 10, 6}}}) {
    OnnxModel model;
    Graph& graph = *model.graph;
    Value* flat = node(graph, "Reshape", {input(graph, "x", {"2", "4", "6", "5"}), ints(graph, {8, 6, 5})});
    Value* turned = node(graph, "Transpose", {flat}, "", {{"perm", one.permutation}});
    simplify(model, node(graph, "Reshape", {turned, ints(graph, one.result)}, "y"));
    EXPECT_THAT(chain_to(graph.outputs[0]), ElementsAre("Reshape", "Transpose", "Reshape"));
  }
}

TEST(Canonicalize, empty_parts_are_not_joined) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"batch", "8"});
  Value* rest = node(graph, "Slice", {x, ints(graph, {8}), ints(graph, {INT64_MAX}), ints(graph, {1})});
  simplify(model, node(graph, "Concat", {node(graph, "Relu", {x}), rest}, "y", {{"axis", int64_t{-1}}}));
  EXPECT_THAT(chain_to(graph.outputs[0]), ElementsAre("Relu"));
}

TEST(Canonicalize, rows_are_not_flattened_around_a_product) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"batch", "sequence", "8"});
  Value* flat = node(graph, "Reshape", {x, ints(graph, {-1, 8})});
  Value* product = node(graph, "Gemm", {flat, state(graph, "w", {8, 4}), state(graph, "c", {4})});
  Value* shape = node(graph, "Concat", {node(graph, "Shape", {x}, "", {{"end", int64_t{2}}}), ints(graph, {4})}, "",
                      {{"axis", int64_t{0}}});
  simplify(model, node(graph, "Reshape", {product, shape}, "y"));
  EXPECT_THAT(chain_to(graph.outputs[0]), ElementsAre("Add", "MatMul"));
  EXPECT_EQ(to_string(graph.outputs[0]->shape()), "[batch, sequence, 4]");
}

TEST(Canonicalize, rows_without_columns_are_not_told_by_their_elements) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* flat = node(graph, "Reshape", {input(graph, "x", {"2", "3"}), ints(graph, {1, 6})});
  Value* product = node(graph, "MatMul", {flat, state(graph, "w", {6, 0})});
  simplify(model, node(graph, "Reshape", {product, ints(graph, {1, 5, 0})}, "y", {{"allowzero", int64_t{1}}}));
  EXPECT_EQ(to_string(graph.outputs[0]->shape()), "[1, 5, 0]");
}

TEST(Canonicalize, rows_split_otherwise_than_they_were_merged_keep_one_reshape) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"batch", "6", "8"});
  Value* flat = node(graph, "Reshape", {x, ints(graph, {-1, 8})});
  Value* product = node(graph, "MatMul", {flat, state(graph, "w", {8, 4})});
  simplify(model, node(graph, "Reshape", {product, ints(graph, {-1, 3, 4})}, "y"));
  EXPECT_THAT(chain_to(graph.outputs[0]), ElementsAre("MatMul", "Reshape"));
  EXPECT_EQ(to_string(graph.outputs[0]->shape()), "[2*batch, 3, 4]");
}

TEST(Canonicalize, product_that_others_use_flat_stays_flat) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"batch", "6", "8"});
  Value* product =
      node(graph, "MatMul", {node(graph, "Reshape", {x, ints(graph, {-1, 8})}), state(graph, "w", {8, 4})}, "flat");
  Value* y = node(graph, "Reshape", {product, ints(graph, {-1, 6, 4})}, "y");
  graph.outputs = {product, y};
  fold(model);
  canonicalize(model);
  EXPECT_EQ(histogram(graph), (Histogram{{"Reshape", 2}, {"MatMul", 1}}));
}

TEST(Canonicalize, changes_of_shape_become_one_reshape_to_an_explicit_shape) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"batch", "4", "3"});
  Value* flat = node(graph, "Flatten", {x});
  simplify(model, node(graph, "Unsqueeze", {flat, ints(graph, {1})}, "y"));
  EXPECT_THAT(chain_to(graph.outputs[0]), ElementsAre("Reshape"));
  const Node* reshape = graph.outputs[0]->producer;
  EXPECT_EQ(to_string(*reshape->inputs[1]->content), "[batch, 1, 12]");
  EXPECT_EQ(reshape->get_int("allowzero", 0), 1);
}

TEST(Canonicalize, what_changes_nothing_goes) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"batch", "4"});
  Value* y = node(graph, "Relu", {x});
  y = node(graph, "Identity", {y});
  y = node(graph, "Transpose", {node(graph, "Transpose", {y})});
  y = node(graph, "Cast", {y}, "", {{"to", int64_t{1}}});
  y = node(graph, "Slice", {y, ints(graph, {0}), ints(graph, {INT64_MAX}), ints(graph, {1})});
  y = node(graph, "Concat", {y}, "", {{"axis", int64_t{0}}});
  y = node(graph, "Reshape", {y, ints(graph, {-1, 4})});
  y = node(graph, "Add", {y, number(graph, -0.0)});
  y = node(graph, "Sub", {y, number(graph, 0)});
  y = node(graph, "Dropout", {y});
  simplify(model, node(graph, "Mul", {number(graph, 1), y}, "y"));
  EXPECT_EQ(histogram(graph), (Histogram{{"Relu", 1}}));
  EXPECT_EQ(graph.outputs[0]->name, "y");
}

TEST(Canonicalize, reversing_slice_stays) {
  OnnxModel model;
  Graph& graph = *model.graph;
  simplify(
      model,
      node(graph, "Slice",
           {input(graph, "x", {"4"}), ints(graph, {-1}), ints(graph, {-5}), ints(graph, {0}), ints(graph, {-1})}, "y"));
  EXPECT_EQ(histogram(graph), (Histogram{{"Slice", 1}}));
}

TEST(Canonicalize, output_that_is_an_input_keeps_its_identity) {
  OnnxModel model;
  Graph& graph = *model.graph;
  simplify(model, node(graph, "Identity", {input(graph, "x", {"4"})}, "y"));
  EXPECT_EQ(histogram(graph), (Histogram{{"Identity", 1}}));
}

TEST(Canonicalize, expand_before_an_operator_that_broadcasts_goes) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* mask = node(graph, "Expand", {input(graph, "m", {"batch", "1", "1", "s"}), ints(graph, {1, 1, 5, 1})});
  Value* doubled = node(graph, "Neg", {mask});
  simplify(model, node(graph, "Add", {input(graph, "x", {"batch", "2", "5", "s"}), doubled}, "y"));
  EXPECT_EQ(histogram(graph), (Histogram{{"Add", 1}, {"Neg", 1}}));
  EXPECT_EQ(to_string(graph.outputs[0]->producer->inputs[1]->shape()), "[batch, 1, 1, s]");
}

TEST(Canonicalize, expand_that_makes_the_result_larger_stays_behind) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* wide = node(graph, "Expand", {input(graph, "x", {"1", "4"}), ints(graph, {3, 4})});
  simplify(model, node(graph, "Neg", {wide}, "y"));
  EXPECT_THAT(chain_to(graph.outputs[0]), ElementsAre("Expand", "Neg"));
  EXPECT_EQ(to_string(graph.outputs[0]->shape()), "[3, 4]");
}

TEST(Canonicalize, constant_predicates_decide) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"4"});
  Value* condition =
      node(graph, "Or", {node(graph, "Greater", {x, number(graph, 0)}), graph.constant_scalar(DType::boolean, 1)});
  simplify(model, node(graph, "Relu", {node(graph, "Where", {condition, x, number(graph, 0)})}, "y"));
  EXPECT_EQ(histogram(graph), (Histogram{{"Relu", 1}}));
}

// -0 + 0 is 0, and -0 - -0 is 0.
TEST(Canonicalize, zero_that_takes_the_sign_of_a_negative_zero_stays) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"batch", "4"});
  Value* n = input(graph, "n", {"batch", "4"}, DType::int64);
  Value* y = node(graph, "Sub", {node(graph, "Add", {x, number(graph, 0)}), number(graph, -0.0)}, "y");
  Value* m = node(graph, "Relu", {node(graph, "Add", {n, integer(graph, 0)})}, "m");
  graph.outputs = {y, m};
  fold(model);
  canonicalize(model);
  EXPECT_EQ(histogram(graph), (Histogram{{"Add", 1}, {"Sub", 1}, {"Relu", 1}}));
}

// What stays of ReduceSum (ScatterElements (data, index, update) * factor).
Histogram sum_of_scattered(const std::vector<std::string>& factor, double data = 0, int64_t axis = 1,
                           const std::string& columns = "10", const std::string& reduction = "none") {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* index = input(graph, "index", {"4", "1"}, DType::int64);
  Value* filling = graph.add_constant("filling", Tensor::of<float>(DType::float32, {1}, {static_cast<float>(data)}));
  Value* update = input(graph, "update", {"4", "1"});
  Value* all = node(graph, "Expand", {filling, ints(graph, {4, std::stoll(columns)})});
  Value* scattered =
      node(graph, "ScatterElements", {all, index, update}, "", {{"axis", int64_t{1}}, {"reduction", reduction}});
  Value* scaled = node(graph, "Mul", {input(graph, "factor", factor), scattered});
  simplify(model, node(graph, "ReduceSum", {scaled, ints(graph, {axis})}, "y", {{"keepdims", int64_t{0}}}));
  EXPECT_EQ(to_string(graph.outputs[0]->shape()), axis == 0 ? "[" + columns + "]" : "[4]");
  return histogram(graph);
}

TEST(Canonicalize, sum_over_scattered_elements_is_their_sum) {
  const Histogram direct = {{"Expand", 1}, {"Gather", 1}, {"Mul", 2}, {"Add", 1}, {"Reshape", 1}};
  EXPECT_EQ(sum_of_scattered({"4", "1"}), direct);
  EXPECT_EQ(sum_of_scattered({"1"}, 0, -1, "10", "add"), direct);
  EXPECT_TRUE(sum_of_scattered({"4", "10"}).contains("ReduceSum")) << "each element has a factor of its own";
  EXPECT_TRUE(sum_of_scattered({"4", "1"}, -0.0).contains("ReduceSum"));
  EXPECT_TRUE(sum_of_scattered({"4", "1"}, 1).contains("ReduceSum"));
  EXPECT_TRUE(sum_of_scattered({"4", "1"}, 0, 0).contains("ReduceSum")) << "the sum over another dimension";
  EXPECT_TRUE(sum_of_scattered({"4", "1"}, 0, 1, "1").contains("ReduceSum")) << "there may be no other element";
  EXPECT_TRUE(sum_of_scattered({"4", "1"}, 0, 1, "10", "max").contains("ReduceSum"));
}

TEST(Canonicalize, integer_gemm_keeps_its_fractions) {
  for (float alpha : {1.0f, 0.5f}) {
    OnnxModel model;
    Graph& graph = *model.graph;
    Value* x = input(graph, "x", {"4", "4"}, DType::int32);
    simplify(model, node(graph, "Gemm", {x, x, x}, "y", {{"alpha", alpha}}));
    EXPECT_EQ(histogram(graph)["Gemm"], alpha == 1 ? 0 : 1);
  }
}

}  // namespace
}  // namespace tessera::rewrite

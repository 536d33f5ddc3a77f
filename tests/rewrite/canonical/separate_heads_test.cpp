#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "rewrite/build.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::rewrite {
namespace {

using testing::ElementsAre;

constexpr int64_t kQueries = 6, kKeys = 2, kWidth = 4, kAll = (kQueries + 2 * kKeys) * kWidth;

/// A parameter whose elements are 0, 1, 2, …
Value* counted(Graph& graph, std::string_view name, Dims dims) {
  std::vector<float> elements(static_cast<size_t>(count_of(dims)));
  std::iota(elements.begin(), elements.end(), 0.0f);
  return graph.add_state(name, Tensor::of(DType::float32, dims, elements));
}

Value* projected(Graph& graph) {
  Value* x = input(graph, "x", {"batch", "sequence", "3"});
  Value* product = node(graph, "MatMul", {x, counted(graph, "w", {3, kAll})});
  return node(graph, "Add", {product, counted(graph, "b", {kAll})}, "qkv");
}

Value* heads(Graph& graph, Value* piece, int64_t count) {
  return node(graph, "Reshape", {piece, ints(graph, {0, 0, count, kWidth})});
}

void separate(OnnxModel& model, std::vector<Value*> outputs) {
  model.graph->outputs = std::move(outputs);
  fold(model);
  canonicalize(model);
  separate_heads(model);
  canonicalize(model);
  model.graph->verify("test");
}

std::vector<Value*> heads_of_pieces(Graph& graph, const std::vector<Value*>& pieces) {
  return {heads(graph, pieces[0], kQueries), heads(graph, pieces[1], kKeys), heads(graph, pieces[2], kKeys)};
}

/// Every output is a projection of its own, of its own part of the parameters.
void expect_separate(const Graph& graph, const std::vector<std::string>& chain) {
  int64_t start = 0;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(chain_to(graph.outputs[i]), chain);
    const Value* weight = graph.find(fmt::format("w.{}", i));
    const Value* bias = graph.find(fmt::format("b.{}", i));
    ASSERT_TRUE(weight && bias);
    const int64_t columns = (i == 0 ? kQueries : kKeys) * kWidth;
    EXPECT_EQ(weight->data.dims, (Dims{3, columns}));
    EXPECT_EQ(weight->data.as<float>()[0], static_cast<float>(start));
    EXPECT_EQ(weight->data.as<float>()[static_cast<size_t>(columns)], static_cast<float>(kAll + start));
    EXPECT_EQ(bias->data.dims, Dims{columns});
    EXPECT_EQ(bias->data.as<float>()[0], static_cast<float>(start));
    start += columns;
  }
}

Value* split(Graph& graph, Value* whole, std::vector<int64_t> sizes, int64_t axis, std::vector<Value*>& pieces) {
  Node* added = graph.add_node("Split", {whole, ints(graph, std::move(sizes))}, {"", "", ""});
  added->set("axis", axis);
  pieces = added->outputs;
  return whole;
}

TEST(SeparateHeads, an_unequal_split_becomes_three_projections) {
  OnnxModel model;
  Graph& graph = *model.graph;
  std::vector<Value*> pieces;
  split(graph, projected(graph), {kQueries * kWidth, kKeys * kWidth, kKeys * kWidth}, -1, pieces);
  separate(model, heads_of_pieces(graph, pieces));
  expect_separate(graph, {"Reshape", "Add", "MatMul"});
}

TEST(SeparateHeads, slices_become_three_projections) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* qkv = projected(graph);
  std::vector<Value*> pieces;
  for (auto [begin, end] : {std::pair(0, 24), std::pair(24, 32), std::pair(32, 40)})
    pieces.push_back(node(graph, "Slice", {qkv, ints(graph, {begin}), ints(graph, {end}), ints(graph, {2})}));
  separate(model, heads_of_pieces(graph, pieces));
  expect_separate(graph, {"Reshape", "Add", "MatMul"});
}

TEST(SeparateHeads, heads_may_be_split_off_and_transposed_before) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* all = heads(graph, projected(graph), kQueries + 2 * kKeys);
  Value* turned = node(graph, "Transpose", {all}, "", {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  std::vector<Value*> pieces;
  split(graph, turned, {kQueries, kKeys, kKeys}, 1, pieces);
  std::vector<Value*> outputs;
  for (Value* piece : pieces) outputs.push_back(node(graph, "Relu", {piece}));
  separate(model, outputs);
  expect_separate(graph, {"Relu", "Transpose", "Reshape", "Add", "MatMul"});
}

TEST(SeparateHeads, rows_of_a_turned_weight_are_shared) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* w = counted(graph, "w", {kAll, 3});
  const std::byte* bytes = w->data.data;
  Value* qkv = node(graph, "Gemm", {input(graph, "x", {"rows", "3"}), w}, "", {{"transB", int64_t{1}}});
  std::vector<Value*> pieces, outputs;
  split(graph, qkv, {24, 8, 8}, 1, pieces);
  for (Value* piece : pieces) outputs.push_back(node(graph, "Reshape", {piece, ints(graph, {0, -1, kWidth})}));
  separate(model, outputs);
  EXPECT_THAT(chain_to(graph.outputs[2]), ElementsAre("Reshape", "Gemm"));
  EXPECT_EQ(graph.find("w.2")->data.data, bytes + 32 * 3 * sizeof(float));
}

TEST(SeparateHeads, equal_pieces_stay_one_projection) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* product = node(graph, "MatMul", {input(graph, "x", {"b", "s", "3"}), counted(graph, "w", {3, 24})});
  std::vector<Value*> pieces, outputs;
  split(graph, product, {8, 8, 8}, -1, pieces);
  for (Value* piece : pieces) outputs.push_back(heads(graph, piece, 2));
  separate(model, outputs);
  EXPECT_EQ(histogram(graph).at("MatMul"), 1);
}

TEST(SeparateHeads, slices_into_equal_pieces_become_a_split) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* product = node(graph, "MatMul", {input(graph, "x", {"b", "s", "3"}), counted(graph, "w", {3, 16})});
  Value* up = node(graph, "Slice", {product, ints(graph, {8}), ints(graph, {INT64_MAX}), ints(graph, {2})});
  Value* gate = node(graph, "Slice", {product, ints(graph, {0}), ints(graph, {8}), ints(graph, {2})});
  separate(model, {node(graph, "Mul", {node(graph, "Sigmoid", {gate}), up})});
  EXPECT_EQ(histogram(graph), (std::map<std::string, int>{{"MatMul", 1}, {"Split", 1}, {"Sigmoid", 1}, {"Mul", 1}}));
  EXPECT_EQ(graph.outputs[0]->producer->inputs[1], graph.outputs[0]->producer->inputs[1]->producer->outputs[1]);
}

TEST(SeparateHeads, multi_query_pieces_need_no_reshape_of_their_own) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* whole = node(graph, "Reshape", {projected(graph), ints(graph, {0, 1, -1, kAll})});
  std::vector<Value*> pieces;
  split(graph, whole, {kAll - 2 * kWidth, kWidth, kWidth}, 3, pieces);
  separate(model, {heads(graph, pieces[0], kAll / kWidth - 2), node(graph, "Relu", {pieces[1]}),
                   node(graph, "Relu", {pieces[2]})});
  EXPECT_EQ(histogram(graph).at("MatMul"), 3);
  EXPECT_THAT(chain_to(graph.outputs[1]), ElementsAre("Relu", "Reshape", "Add", "MatMul"));
}

TEST(SeparateHeads, pieces_that_are_no_heads_stay_one_projection) {
  OnnxModel model;
  Graph& graph = *model.graph;
  std::vector<Value*> pieces, outputs;
  split(graph, projected(graph), {8, 16, 16}, -1, pieces);
  for (Value* piece : pieces) outputs.push_back(node(graph, "Relu", {piece}));
  separate(model, outputs);
  EXPECT_EQ(histogram(graph).at("MatMul"), 1);
}

/// A step that takes heads from one weight: an update by the gradient of the pieces' sum, momentum, and the gradient's
/// square. `other` may use the weight, its gradient, and its next value.
OnnxModel stepped(const std::function<void(Graph&, Value*, Value*, Value*)>& other = nullptr) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"rows", "3"});
  Value *w = counted(graph, "w", {3, kAll}), *m = counted(graph, "m", {3, kAll});
  std::vector<Value*> pieces;
  split(graph, node(graph, "MatMul", {x, w}), {kQueries * kWidth, kKeys * kWidth, kKeys * kWidth}, -1, pieces);
  std::vector<Value*> back;
  const Dims counts = {kQueries, kKeys, kKeys};
  for (size_t i = 0; i < 3; ++i) {
    Value* of_heads = node(graph, "Tanh", {node(graph, "Reshape", {pieces[i], ints(graph, {0, counts[i], kWidth})})});
    back.push_back(node(graph, "Reshape", {of_heads, ints(graph, {0, counts[i] * kWidth})}));
  }
  Node* joined = graph.add_node("Concat", back, {"dqkv"});
  joined->set("axis", int64_t{1});
  Value* turned = node(graph, "Transpose", {x}, "", {{"perm", std::vector<int64_t>{1, 0}}});
  Value* gradient = node(graph, "MatMul", {turned, joined->outputs[0]}, "g");
  Value* momentum = node(graph, "Add", {node(graph, "Mul", {m, number(graph, 0.5)}), gradient}, "next.m");
  Value* next = node(graph, "Sub", {w, momentum}, "next.w");
  Value* transposed = node(graph, "Transpose", {w}, "", {{"perm", std::vector<int64_t>{1, 0}}});
  graph.outputs = {
      node(graph, "MatMul", {joined->outputs[0], transposed}, "dx"),
      node(graph, "ReduceSum", {node(graph, "Mul", {gradient, gradient})}, "square", {{"keepdims", int64_t{0}}})};
  if (other) other(graph, w, gradient, next);
  graph.set_next(w, next);
  graph.set_next(m, momentum);
  return model;
}

TEST(SeparateHeads, a_weight_that_changes_is_divided_with_its_moments_and_its_update) {
  OnnxModel model = stepped();
  Graph& graph = *model.graph;
  separate(model, graph.outputs);
  EXPECT_FALSE(graph.find("w"));
  EXPECT_FALSE(graph.find("m"));
  int64_t start = 0;
  for (size_t i = 0; i < 3; ++i) {
    const int64_t columns = (i == 0 ? kQueries : kKeys) * kWidth;
    for (const char* name : {"w", "m"}) {
      const Value* piece = graph.find(fmt::format("{}.{}", name, i));
      ASSERT_TRUE(piece) << name;
      EXPECT_TRUE(piece->changing);
      EXPECT_EQ(piece->data.dims, (Dims{3, columns}));
      EXPECT_EQ(piece->data.as<float>()[0], static_cast<float>(start));
      EXPECT_EQ(piece->origin, (StateOrigin{name, {3, kAll}, {0, start}}));
      ASSERT_TRUE(piece->next);
      EXPECT_EQ(constants_of(piece->next->shape()), (Dims{3, columns}));
      EXPECT_EQ(piece->next->producer->op_type, *name == 'w' ? "Sub" : "Add");
    }
    EXPECT_EQ(graph.find(fmt::format("w.{}", i))->next->producer->inputs[0], graph.find(fmt::format("w.{}", i)));
    start += columns;
  }
  // No piece is cut or joined, and what sums over them adds.
  const auto counts = histogram(graph);
  for (const char* gone : {"Split", "Slice", "Concat"}) EXPECT_EQ(counts.count(gone), 0u) << gone;
  EXPECT_EQ(counts.at("MatMul"), 9);
  EXPECT_EQ(graph.outputs[0]->name, "dx");
  EXPECT_THAT(chain_to(graph.outputs[1]), testing::IsSupersetOf({"Add", "Add", "ReduceSum", "Mul"}));
}

TEST(SeparateHeads, a_weight_that_a_node_needs_whole_is_not_divided) {
  const std::vector<std::function<void(Graph&, Value*, Value*, Value*)>> readers = {
      [](Graph& graph, Value* w, Value*, Value*) {  // along the divided dimension
        graph.outputs.push_back(node(graph, "CumSum", {w, integer(graph, 1)}));
      },
      [](Graph& graph, Value*, Value* gradient, Value*) {  // as a vector of all elements
        graph.outputs.push_back(node(graph, "Reshape", {gradient, ints(graph, {-1})}));
      },
      [](Graph& graph, Value* w, Value*, Value*) {  // in other pieces
        std::vector<Value*> pieces;
        split(graph, w, {8, 8, 24}, 1, pieces);
        graph.outputs.insert(graph.outputs.end(), pieces.begin(), pieces.end());
      },
      [](Graph& graph, Value* w, Value*, Value*) { graph.outputs.push_back(w); },
      [](Graph& graph, Value*, Value*, Value* next) {  // the next value of a state that is cut otherwise
        Value* other = counted(graph, "other", {kAll, 3});
        graph.outputs.push_back(node(graph, "Softmax", {node(graph, "Add", {next, next})}));
        graph.outputs.push_back(node(graph, "MatMul", {other, next}));
        graph.set_next(other, node(graph, "Softmax", {other}));
      },
  };
  for (size_t i = 0; i < readers.size(); ++i) {
    SCOPED_TRACE(i);
    OnnxModel model = stepped(readers[i]);
    const std::vector<Value*> outputs = model.graph->outputs;
    separate(model, outputs);
    for (const char* name : {"w", "m"}) {
      ASSERT_TRUE(model.graph->find(name));
      EXPECT_FALSE(model.graph->find(name)->origin);
      EXPECT_TRUE(model.graph->find(name)->next);
    }
    EXPECT_EQ(histogram(*model.graph).at("MatMul"), i == 4 ? 4 : 3);
  }
}

TEST(SeparateHeads, a_constant_bias_may_have_other_readers) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"batch", "sequence", "3"});
  Value* bias = graph.add_constant("b", Tensor::zeros(DType::float32, {kAll}));
  Value* product = node(graph, "MatMul", {x, counted(graph, "w", {3, kAll})});
  std::vector<Value*> pieces;
  split(graph, node(graph, "Add", {product, bias}), {24, 8, 8}, -1, pieces);
  std::vector<Value*> outputs = heads_of_pieces(graph, pieces);
  outputs.push_back(node(graph, "Softmax", {bias}));
  separate(model, outputs);
  EXPECT_EQ(histogram(graph).at("MatMul"), 3);
  EXPECT_EQ(graph.outputs[3]->producer->inputs[0], graph.find("b"));
}

TEST(SeparateHeads, a_weight_that_the_step_takes_apart_is_divided) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* w = counted(graph, "w", {kAll, 3});
  Value* x = input(graph, "x", {"3", "rows"});
  std::vector<Value*> products;
  for (auto [begin, end] : {std::pair(0, 24), std::pair(24, 32), std::pair(32, 40)}) {
    Value* rows = node(graph, "Slice", {w, ints(graph, {begin}), ints(graph, {end}), ints(graph, {0})});
    products.push_back(node(graph, "MatMul", {rows, x}));
  }
  graph.set_next(w, node(graph, "Mul", {w, number(graph, 0.5)}));
  separate(model, products);
  EXPECT_EQ(histogram(graph), (std::map<std::string, int>{{"MatMul", 3}, {"Mul", 3}}));
  EXPECT_EQ(graph.find("w.2")->origin, (StateOrigin{"w", {kAll, 3}, {32, 0}}));
  EXPECT_EQ(graph.find("w.2")->next->producer->inputs[0], graph.find("w.2"));
}

TEST(SeparateHeads, values_that_are_outputs_are_put_together) {
  OnnxModel model = stepped([](Graph& graph, Value*, Value* gradient, Value* next) {
    graph.outputs.push_back(gradient);
    graph.outputs.push_back(next);
  });
  Graph& graph = *model.graph;
  separate(model, graph.outputs);
  ASSERT_TRUE(graph.find("w.2"));
  for (size_t i : {2, 3}) {
    EXPECT_EQ(graph.outputs[i]->name, i == 2 ? "g" : "next.w");
    EXPECT_EQ(graph.outputs[i]->producer->op_type, "Concat");
    EXPECT_EQ(constants_of(graph.outputs[i]->shape()), (Dims{3, kAll}));
  }
  EXPECT_EQ(graph.outputs[3]->producer->inputs[1], graph.find("w.1")->next);
}

TEST(SeparateHeads, an_annotated_weight_stays_whole) {
  OnnxModel model;
  Graph& graph = *model.graph;
  std::vector<Value*> pieces;
  split(graph, projected(graph), {24, 8, 8}, -1, pieces);
  graph.outputs = heads_of_pieces(graph, pieces);
  rewrite_model(model, {.barriers = {"w"}});
  EXPECT_EQ(histogram(graph).at("MatMul"), 1);
  EXPECT_EQ(graph.outputs.size(), 3u);
}

}  // namespace
}  // namespace tessera::rewrite

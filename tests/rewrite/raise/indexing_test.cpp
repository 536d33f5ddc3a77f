#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/raise/affine.h"

namespace tessera::rewrite {
namespace {

using testing::ElementsAre;
using Histogram = std::map<std::string, int>;

Value* extent(Graph& graph, std::string_view symbol) {
  return graph.add_expression("", {Expr::symbol(symbol)}, true);
}

Value* arange(Graph& graph, std::string_view symbol) {
  return node(graph, "Range", {integer(graph, 0), extent(graph, symbol), integer(graph, 1)});
}

std::string str(const Affine* affine) {
  return affine ? affine->offset.str() + " + " + to_string(affine->strides) : "unknown";
}

TEST(Affine, arithmetic_on_ranges_stays_affine) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* column = node(graph, "Unsqueeze", {arange(graph, "b"), ints(graph, {1})});
  Value* row = arange(graph, "s");
  Value* sum = node(graph, "Add", {row, node(graph, "Mul", {column, extent(graph, "s")})});
  Value* part =
      node(graph, "Slice", {sum, ints(graph, {2}), ints(graph, {INT64_MAX}), ints(graph, {1}), ints(graph, {3})});
  graph.outputs = {part};
  fold(model);
  AffineAnalysis analysis(graph);
  EXPECT_EQ(str(analysis.of(column)), "0 + [1, 0]");
  EXPECT_EQ(str(analysis.of(sum)), "0 + [s, 1]");
  EXPECT_EQ(str(analysis.of(part)), "2 + [s, 3]");
}

TEST(Affine, pieces_that_continue_each_other_are_one_progression) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* line = arange(graph, "s");
  Value* first = graph.constant_int64({-1});
  Value* joined = node(graph, "Concat", {first, line}, "", {{"axis", int64_t{0}}});
  Value* broken = node(graph, "Concat", {line, first}, "", {{"axis", int64_t{0}}});
  graph.outputs = {joined, broken};
  fold(model);
  AffineAnalysis analysis(graph);
  EXPECT_EQ(str(analysis.of(joined)), "-1 + [1]");
  EXPECT_EQ(str(analysis.of(broken)), "unknown");
}

// As positions are counted along a mask that hides nothing.
TEST(Affine, running_sums_of_one_number_are_its_multiples) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* shape = graph.add_expression("", {Expr::symbol("b"), Expr::symbol("s")});
  Value* twos = node(graph, "Expand", {integer(graph, 2), shape});
  const auto sum = [&](int64_t axis, bool exclusive, bool reverse) {
    Value* made = node(graph, "CumSum", {twos, integer(graph, axis)}, "",
                       {{"exclusive", int64_t{exclusive}}, {"reverse", int64_t{reverse}}});
    graph.outputs.push_back(made);
    return made;
  };
  Value *along = sum(1, false, false), *last = sum(-1, true, false), *first = sum(0, false, true),
        *back = sum(1, true, true);
  Value* others = node(graph, "CumSum", {arange(graph, "s"), integer(graph, 0)});
  graph.outputs.push_back(others);
  fold(model);
  AffineAnalysis analysis(graph);
  EXPECT_EQ(str(analysis.of(along)), "2 + [0, 2]");
  EXPECT_EQ(str(analysis.of(last)), "0 + [0, 2]");
  EXPECT_EQ(str(analysis.of(first)), "2*b + [-2, 0]");
  EXPECT_EQ(str(analysis.of(back)), "2*s - 2 + [0, -2]");
  EXPECT_EQ(str(analysis.of(others)), "unknown");
}

TEST(Affine, comparisons_are_decided_where_bounds_prove_them) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* row = arange(graph, "s");
  Value* column = node(graph, "Unsqueeze", {row, ints(graph, {1})});
  Value* never_negative = node(graph, "GreaterOrEqual", {row, integer(graph, 0)});
  Value* below_zero = node(graph, "Less", {row, integer(graph, 0)});
  Value* open = node(graph, "LessOrEqual", {row, column});
  graph.outputs = {never_negative, below_zero, open};
  fold(model);
  AffineAnalysis analysis(graph);
  EXPECT_EQ(analysis.of(never_negative)->uniform(), 1);
  EXPECT_EQ(analysis.of(below_zero)->uniform(), 0);
  EXPECT_EQ(analysis.of(open), nullptr);
}

TEST(Affine, constants_are_checked_element_by_element) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* table = graph.add_constant("", Tensor::of<int64_t>(DType::int64, {2, 3}, {5, 6, 7, 15, 16, 17}));
  Value* other = graph.add_constant("", Tensor::of<int64_t>(DType::int64, {2, 3}, {5, 6, 7, 15, 16, 18}));
  AffineAnalysis analysis(graph);
  EXPECT_EQ(str(analysis.of(table)), "5 + [10, 1]");
  EXPECT_EQ(str(analysis.of(other)), "unknown");
}

TEST(RaiseIndexing, gather_nd_by_coordinates_is_a_reshape) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* mask = input(graph, "mask", {"b", "s"}, DType::boolean);
  Value* rows = node(graph, "Reshape", {arange(graph, "b"), ints(graph, {-1, 1, 1, 1})});
  Value* columns = node(graph, "Unsqueeze", {arange(graph, "s"), ints(graph, {0, 1, 2})});
  Value* shape = node(graph, "Shape", {node(graph, "Max", {rows, columns})});
  auto component = [&](Value* x) {
    return node(graph, "Unsqueeze", {node(graph, "Expand", {x, shape}), ints(graph, {-1})});
  };
  Value* index = node(graph, "Concat", {component(rows), component(columns)}, "", {{"axis", int64_t{-1}}});
  graph.outputs = {node(graph, "GatherND", {mask, index}, "y")};
  fold(model);
  raise_indexing(model);
  graph.verify("test");
  EXPECT_EQ(histogram(graph), (Histogram{{"Reshape", 1}}));
  EXPECT_EQ(to_string(graph.outputs[0]->shape()), "[b, 1, 1, s]");
}

TEST(RaiseIndexing, gather_nd_by_exchanged_coordinates_transposes) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"b", "s"});
  Value* shape = graph.add_expression("", {Expr::symbol("s"), Expr::symbol("b"), 1});
  Value* rows = node(graph, "Expand", {node(graph, "Unsqueeze", {arange(graph, "b"), ints(graph, {0, 2})}), shape});
  Value* columns = node(graph, "Expand", {node(graph, "Unsqueeze", {arange(graph, "s"), ints(graph, {1, 2})}), shape});
  Value* index = node(graph, "Concat", {rows, columns}, "", {{"axis", int64_t{-1}}});
  graph.outputs = {node(graph, "GatherND", {x, index}, "y")};
  fold(model);
  raise_indexing(model);
  EXPECT_THAT(chain_to(graph.outputs[0]), ElementsAre("Transpose"));
  EXPECT_EQ(to_string(graph.outputs[0]->shape()), "[s, b]");
}

TEST(RaiseIndexing, gather_nd_of_a_part_stays) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"b", "s"});
  Value* index = node(graph, "Unsqueeze", {arange(graph, "fewer"), ints(graph, {1})});
  graph.outputs = {node(graph, "GatherND", {x, index}, "y")};
  fold(model);
  raise_indexing(model);
  EXPECT_EQ(histogram(graph)["GatherND"], 1);
}

TEST(RaiseIndexing, gather_by_row_major_position_is_a_reshape) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* mask = input(graph, "mask", {"b", "s"}, DType::boolean);
  Value* flat = node(graph, "Reshape", {mask, ints(graph, {-1})});
  Value* rows = node(graph, "Unsqueeze", {arange(graph, "b"), ints(graph, {1, 2, 3})});
  Value* columns = node(graph, "Unsqueeze", {arange(graph, "s"), ints(graph, {0, 1, 2})});
  Value* position = node(graph, "Add", {node(graph, "Mul", {rows, extent(graph, "s")}), columns});
  graph.outputs = {node(graph, "Gather", {flat, position}, "y")};
  fold(model);
  raise_indexing(model);
  EXPECT_EQ(histogram(graph), (Histogram{{"Reshape", 1}}));
  EXPECT_EQ(to_string(graph.outputs[0]->shape()), "[b, 1, 1, s]");
}

TEST(RaiseIndexing, lookup_by_data_stays) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* ids = input(graph, "ids", {"b", "s"}, DType::int64);
  graph.outputs = {node(graph, "Gather", {state(graph, "table", {100, 8}), ids}, "y")};
  fold(model);
  raise_indexing(model);
  EXPECT_EQ(histogram(graph), (Histogram{{"Gather", 1}}));
}

TEST(RaiseIndexing, slice_of_a_table_of_positions_becomes_a_range) {
  OnnxModel model;
  Graph& graph = *model.graph;
  std::vector<int64_t> positions(512);
  for (int64_t i = 0; i < 512; ++i) positions[i] = i;
  Value* table = graph.add_constant("positions", Tensor::of(DType::int64, {1, 512}, positions));
  Value* part =
      node(graph, "Slice", {table, ints(graph, {0}), graph.add_expression("", {Expr::symbol("s")}), ints(graph, {1})});
  graph.outputs = {node(graph, "Gather", {state(graph, "embedding", {512, 8}), part}, "y")};
  fold(model);
  raise_indexing(model);
  EXPECT_EQ(histogram(graph), (Histogram{{"Gather", 1}, {"Range", 1}, {"Reshape", 1}}));
}

// OPT counts positions along a mask of floats.
TEST(RaiseIndexing, running_sums_of_floats_are_ranges) {
  for (const double number : {1.0, 2.0, 0.5}) {
    OnnxModel model;
    Graph& graph = *model.graph;
    Value* shape = graph.add_expression("", {Expr::symbol("b"), Expr::symbol("s")});
    Value* ones = node(graph, "Expand", {rewrite::number(graph, number), shape});
    graph.outputs = {node(graph, "CumSum", {ones, integer(graph, 1)}, "y")};
    fold(model);
    raise_indexing(model);
    EXPECT_EQ(histogram(graph).count("CumSum"), number == 0.5 ? 1u : 0u) << number;
    EXPECT_EQ(histogram(graph).count("Range"), number == 0.5 ? 0u : 1u) << number;
    EXPECT_EQ(to_string(graph.outputs[0]->shape()), "[b, s]");
  }
}

}  // namespace
}  // namespace tessera::rewrite

#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

using Histogram = std::map<std::string, int>;

class RaiseRotary : public testing::Test {
 protected:
  /// [1, 1, sequence, 16]
  Value* table(std::string_view function) {
    Value* twice = node(graph, "Concat", {angles, angles}, "", {{"axis", int64_t{-1}}});
    return node(graph, "Unsqueeze", {node(graph, function, {twice}), ints(graph, {1})});
  }
  Value* part(int64_t from, int64_t to) {
    return node(graph, "Slice", {x, ints(graph, {from}), ints(graph, {to}), ints(graph, {3}), ints(graph, {1})});
  }
  Value* rotated(Value* first, Value* second) {
    return node(graph, "Concat", {node(graph, "Neg", {second}), first}, "", {{"axis", int64_t{-1}}});
  }
  Histogram raised(Value* output) {
    graph.outputs = {output};
    fold(model);
    canonicalize(model);
    raise_rotary(model);
    canonicalize(model);
    graph.verify("test");
    return histogram(graph);
  }

  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"batch", "6", "sequence", "16"});
  Value* angles = input(graph, "angles", {"1", "sequence", "8"});
};

TEST_F(RaiseRotary, halves_by_slices) {
  Value* straight = node(graph, "Mul", {x, table("Cos")});
  Value* turned = node(graph, "Mul", {rotated(part(0, 8), part(8, INT64_MAX)), table("Sin")});
  EXPECT_EQ(raised(node(graph, "Add", {straight, turned}, "y")),
            (Histogram{{"RotaryEmbedding", 1}, {"Cos", 1}, {"Sin", 1}}));
  const Node* rotary = graph.outputs[0]->producer;
  EXPECT_EQ(rotary->inputs[0], x);
  EXPECT_EQ(to_string(rotary->inputs[1]->shape()), "[1, sequence, 8]");
  EXPECT_EQ(rotary->inputs[1]->producer->op_type, "Cos");
  EXPECT_EQ(rotary->inputs[2]->producer->op_type, "Sin");
}

/// As gpt-oss is exported: tables of half the width, and the halves joined at last.
class RotatedHalves : public RaiseRotary {
 protected:
  Value* half_table(std::string_view function) {
    return node(graph, "Unsqueeze", {node(graph, function, {angles}), ints(graph, {1})});
  }
  Value* mul(Value* a, Value* b) { return node(graph, "Mul", {a, b}); }
  Value* first = part(0, 8);
  Value* second = part(8, 16);
  Value* cos = half_table("Cos");
  Value* sin = half_table("Sin");
  Value* joined(std::string_view less, Value* a, Value* b, Value* c, Value* d) {
    return node(graph, "Concat", {node(graph, less, {a, b}), node(graph, "Add", {c, d})}, "y", {{"axis", int64_t{-1}}});
  }
  int rotations(Value* halves) { return raised(halves)["RotaryEmbedding"]; }
};

TEST_F(RotatedHalves, are_joined_again) {
  EXPECT_EQ(raised(joined("Sub", mul(first, cos), mul(second, sin), mul(second, cos), mul(first, sin))),
            (Histogram{{"RotaryEmbedding", 1}, {"Cos", 1}, {"Sin", 1}}));
  const Node* rotary = graph.outputs[0]->producer;
  EXPECT_EQ(rotary->inputs[0], x);
  EXPECT_EQ(rotary->inputs[1]->producer->op_type, "Cos");
  EXPECT_EQ(to_string(rotary->inputs[2]->shape()), "[1, sequence, 8]");
}

TEST_F(RotatedHalves, in_any_order_of_factors_and_terms) {
  EXPECT_EQ(rotations(joined("Sub", mul(cos, first), mul(sin, second), mul(sin, first), mul(cos, second))), 1);
}

TEST_F(RotatedHalves, that_turn_the_other_way_stay) {
  EXPECT_EQ(rotations(joined("Sub", mul(second, sin), mul(first, cos), mul(second, cos), mul(first, sin))), 0);
}

TEST_F(RotatedHalves, with_tables_exchanged_stay) {
  EXPECT_EQ(rotations(joined("Sub", mul(first, cos), mul(second, sin), mul(second, sin), mul(first, cos))), 0);
}

TEST_F(RotatedHalves, that_are_added_stay) {
  EXPECT_EQ(rotations(joined("Add", mul(first, cos), mul(second, sin), mul(second, cos), mul(first, sin))), 0);
}

TEST_F(RaiseRotary, halves_by_split_and_factors_exchanged) {
  Node* split = graph.add_node("Split", {x}, {"first", "second"});
  split->set("axis", int64_t{3});
  split->set("num_outputs", int64_t{2});
  Value* turned = node(graph, "Mul", {table("Sin"), rotated(split->outputs[0], split->outputs[1])});
  Value* straight = node(graph, "Mul", {table("Cos"), x});
  EXPECT_EQ(raised(node(graph, "Add", {turned, straight}, "y")),
            (Histogram{{"RotaryEmbedding", 1}, {"Cos", 1}, {"Sin", 1}}));
}

TEST_F(RaiseRotary, the_other_half_negated_is_another_rotation) {
  Value* straight = node(graph, "Mul", {x, table("Cos")});
  Value* turned = node(graph, "Mul", {rotated(part(8, 16), part(0, 8)), table("Sin")});
  EXPECT_FALSE(raised(node(graph, "Add", {straight, turned}, "y")).contains("RotaryEmbedding"));
}

TEST_F(RaiseRotary, table_whose_halves_may_differ_stays_spelt_out) {
  Value* cos = input(graph, "cos", {"1", "1", "sequence", "16"});
  Value* straight = node(graph, "Mul", {x, cos});
  Value* turned = node(graph, "Mul", {rotated(part(0, 8), part(8, 16)), table("Sin")});
  EXPECT_FALSE(raised(node(graph, "Add", {straight, turned}, "y")).contains("RotaryEmbedding"));
}

}  // namespace
}  // namespace tessera::rewrite

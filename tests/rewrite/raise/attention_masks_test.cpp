// What becomes of masks when attention is raised: attributes, operands, or nothing of it is raised.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "rewrite/build.h"
#include "rewrite/spelt_attention.h"
#include "tessera/ir/text.h"
#include "tessera/rewrite/edit.h"

namespace tessera::rewrite {
namespace {

using Histogram = std::map<std::string, int>;

class AttentionMasks : public SpeltAttention {};

TEST_F(AttentionMasks, padding_mask_is_an_operand) {
  Value* mask = input(graph, "mask", {"b", "1", "1", "s"});
  const Node* attention = raised(attend(node(graph, "Add", {mask, scaled_scores()}), v));
  EXPECT_EQ(attention->inputs.at(3), mask);
}

struct Comparison {
  const char* type;
  bool query_first, negated;
};

/// All of these mean: key position ≤ query position.
class CausalMask : public SpeltAttention, public testing::WithParamInterface<Comparison> {
 protected:
  Value* predicate() {
    Value* compared = causal(GetParam().type, GetParam().query_first);
    return GetParam().negated ? node(graph, "Not", {compared}) : compared;
  }
};

TEST_P(CausalMask, added_becomes_the_attribute) {
  Value* mask = node(graph, "Where", {predicate(), number(graph, 0), number(graph, -3.4e38)});
  const Node* attention = raised(attend(node(graph, "Add", {scaled_scores(), mask}), v));
  EXPECT_EQ(histogram(graph), (Histogram{{"Attention", 1}}));
  EXPECT_EQ(attention->get_int("is_causal", 0), 1);
}

TEST_P(CausalMask, selecting_becomes_the_attribute) {
  const Node* attention = raised(attend(node(graph, "Where", {predicate(), scaled_scores(), number(graph, -1e31)}), v));
  EXPECT_EQ(histogram(graph), (Histogram{{"Attention", 1}}));
  EXPECT_EQ(attention->get_int("is_causal", 0), 1);
}

INSTANTIATE_TEST_SUITE_P(Spellings, CausalMask,
                         testing::Values(Comparison{"LessOrEqual", false, false},
                                         Comparison{"GreaterOrEqual", true, false}, Comparison{"Greater", false, true},
                                         Comparison{"Less", true, true}),
                         [](const auto& info) { return info.param.type; });

/// Whether a constant table that allows key ≤ query counts as causal with the element [query, key] flipped.
class ConstantTriangle : public SpeltAttention, public testing::WithParamInterface<std::pair<int64_t, int64_t>> {};

TEST_P(ConstantTriangle, is_causal_only_if_no_element_differs) {
  auto [row, column] = GetParam();
  Tensor triangle = Tensor::zeros(DType::boolean, {1, 1, 8, 8});
  for (int64_t i = 0; i < 8; ++i)
    for (int64_t j = 0; j < 8; ++j)
      triangle.mutable_data()[i * 8 + j] = std::byte{(j <= i) != (i == row && j == column)};
  q = input(graph, "q8", {"b", "6", "5", "16"});
  k = v = input(graph, "k8", {"b", "6", "5", "16"});
  Value* predicate =
      node(graph, "Slice",
           {graph.add_constant("triangle", triangle), ints(graph, {0, 0}), ints(graph, {5, 5}), ints(graph, {2, 3})});
  Value* mask = node(graph, "Where", {predicate, number(graph, 0), number(graph, -3.4e38)});
  const Node* attention = raised(attend(node(graph, "Add", {scaled_scores(), mask}), v));
  EXPECT_EQ(attention->get_int("is_causal", -1), row < 0);
}

// A mask of one column hides the other keys, also if it is a constant that changes nothing about the first.
TEST_F(AttentionMasks, masks_of_fewer_keys_stay) {
  for (const bool is_boolean : {false, true}) {
    OnnxModel own;
    Graph& g = *own.graph;
    Value* x = input(g, "x", {"b", "6", "5", "16"});
    const Tensor mask =
        is_boolean ? Tensor::of<uint8_t>(DType::boolean, {1, 1}, {1}) : Tensor::of<float>(DType::float32, {1, 1}, {0});
    g.outputs = {node(g, "Attention", {x, x, x, g.add_constant("mask", mask)}, "y")};
    fold(own);
    raise_attention(own);
    EXPECT_TRUE(g.outputs[0]->producer->input(3));
  }
}

// What is added to scores, in any type of floats.
TEST_F(AttentionMasks, constant_triangles_of_floats_are_causal) {
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    OnnxModel own;
    Graph& g = *own.graph;
    Tensor triangle = Tensor::zeros(dtype, {1, 1, 5, 5});
    const Tensor hidden = g.constant_scalar(dtype, -std::numeric_limits<double>::infinity())->data;
    for (int64_t i = 0; i < 5; ++i)
      for (int64_t j = i + 1; j < 5; ++j)
        std::copy_n(hidden.data, hidden.bytes, triangle.mutable_data() + (i * 5 + j) * hidden.bytes);
    Value* x = input(g, "x", {"b", "6", "5", "16"}, dtype);
    g.outputs = {node(g, "Attention", {x, x, x, g.add_constant("triangle", triangle)}, "y")};
    fold(own);
    raise_attention(own);
    const Node* attention = g.outputs[0]->producer;
    EXPECT_EQ(attention->get_int("is_causal", 0), 1) << name_of(dtype);
    EXPECT_FALSE(attention->input(3)) << name_of(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Flips, ConstantTriangle,
                         testing::Values(std::pair<int64_t, int64_t>{-1, -1}, std::pair<int64_t, int64_t>{2, 3},
                                         std::pair<int64_t, int64_t>{4, 0}));

/// Masks that are added to the scores, as libraries and exporters spell them: text that makes `mask` from `length`,
/// which is [s, s].
struct SpeltMask {
  const char* name;
  const char* text;
  bool causal;
};

class SpeltMasks : public testing::TestWithParam<SpeltMask> {};

TEST_P(SpeltMasks, is_the_attribute_exactly_where_it_hides_later_keys) {
  OnnxModel model = parse_text(std::string(R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[b, 6, s, 16] q, float[b, 6, 16, s] k, float[b, 6, s, 16] v) => (float[b, 6, s, 16] y)
    <float one = {1.0}, float zero = {0.0}, float low = {-inf}, float lowest = {-3.4e38}, int64 next = {1}> {
      side = Shape <start = 2, end = 3> (q)
      length = Concat <axis = 0> (side, side)
      )") + GetParam().text + R"(
      scores = MatMul (q, k)
      logits = Add (scores, mask)
      weights = Softmax <axis = -1> (logits)
      y = MatMul (weights, v)
    })");
  Graph& graph = *model.graph;
  fold(model);
  canonicalize(model);
  raise_attention(model);
  const Node* attention = graph.outputs[0]->producer;
  ASSERT_EQ(attention->op_type, "Attention");
  EXPECT_EQ(attention->get_int("is_causal", 0), GetParam().causal);
}

INSTANTIATE_TEST_SUITE_P(
    Spellings, SpeltMasks,
    testing::Values(SpeltMask{"is_causal", R"(ones = Expand (one, length)
          lower = Trilu <upper = 0> (ones)
          later = Equal (lower, zero)
          mask = Where (later, low, zero))",
                              true},
                    SpeltMask{"filled_by_shape", R"(ones = ConstantOfShape <value = float[1] {1.0}> (length)
          lower = Trilu <upper = 0> (ones)
          later = Equal (lower, zero)
          mask = Where (later, low, lower))",
                              false},  // one is added to the keys up to the query
                    SpeltMask{"upper_part", R"(lows = ConstantOfShape <value = float[1] {-inf}> (length)
          mask = Trilu <upper = 1> (lows, next))",
                              true},
                    SpeltMask{"upper_part_with_the_query_itself",
                              R"(lows = ConstantOfShape <value = float[1] {-inf}> (length)
          mask = Trilu <upper = 1> (lows))",
                              false},
                    SpeltMask{"scaled_complement", R"(ones = Expand (one, length)
          lower = Trilu <upper = 0> (ones)
          later = Sub (one, lower)
          mask = Mul (later, lowest))",
                              true},
                    SpeltMask{"cast_to_bool", R"(ones = Expand (one, length)
          lower = Trilu <upper = 0> (ones)
          seen = Cast <to = 9> (lower)
          all = Equal (ones, ones)
          both = And (seen, all)
          hidden = Not (both)
          mask = Where (hidden, lowest, zero))",
                              true},
                    SpeltMask{"other_way_round", R"(ones = Expand (one, length)
          lower = Trilu <upper = 0> (ones)
          later = Equal (lower, zero)
          mask = Where (later, zero, low))",
                              false},
                    SpeltMask{"not_a_number_before", R"(ones = Expand (one, length)
          lower = Trilu <upper = 0> (ones)
          later = Sub (one, lower)
          mask = Mul (later, low))",
                              false},
                    SpeltMask{"one_row_for_all_queries", R"(ones = Expand (one, length)
          lower = Trilu <upper = 0> (ones)
          row = ReduceMax <keepdims = 1> (lower)
          later = Equal (row, zero)
          mask = Where (later, low, zero))",
                              false}),
    [](const auto& info) { return info.param.name; });

TEST_F(AttentionMasks, upper_triangle_of_minus_infinity_is_causal_from_the_first_diagonal_on) {
  for (int64_t diagonal : {1, 2}) {
    OnnxModel other;
    Graph& own = *other.graph;
    Value* x = input(own, "x", {"b", "6", "5", "16"});
    Value* full = node(own, "Expand", {number(own, -3.4e38), ints(own, {5, 5})});
    Value* mask = node(own, "Trilu", {full, integer(own, diagonal)}, "", {{"upper", int64_t{1}}});
    Value* turned_x = node(own, "Transpose", {x}, "", {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    Value* logits = node(own, "Add", {node(own, "MatMul", {x, turned_x}), mask});
    Value* weights = node(own, "Softmax", {logits}, "", {{"axis", int64_t{-1}}});
    own.outputs = {node(own, "MatMul", {weights, x}, "y")};
    fold(other);
    raise_attention(other);
    EXPECT_EQ(own.outputs[0]->producer->get_int("is_causal", -1), diagonal == 1);
  }
}

TEST_F(AttentionMasks, strictly_causal_mask_stays_a_mask) {
  Value* mask = node(graph, "Where", {causal("Less", false), number(graph, 0), number(graph, -3.4e38)});
  const Node* attention = raised(attend(node(graph, "Add", {scaled_scores(), mask}), v));
  EXPECT_EQ(attention->get_int("is_causal", -1), 0);
  EXPECT_EQ(attention->inputs.size(), 4u);
}

TEST_F(AttentionMasks, mask_that_looks_ahead_stays_a_mask) {
  Value* mask = node(graph, "Where", {causal("GreaterOrEqual", false), number(graph, 0), number(graph, -3.4e38)});
  EXPECT_EQ(raised(attend(node(graph, "Add", {scaled_scores(), mask}), v))->get_int("is_causal", -1), 0);
}

TEST_F(AttentionMasks, mask_with_a_finite_penalty_stays_a_mask) {
  Value* mask = node(graph, "Where", {causal("LessOrEqual", false), number(graph, 0), number(graph, -5)});
  EXPECT_EQ(raised(attend(node(graph, "Add", {scaled_scores(), mask}), v))->get_int("is_causal", -1), 0);
}

class WindowMask : public SpeltAttention {
 protected:
  /// Attention under a mask that shows the keys from `first` to `last` after the query.
  const Node* in_window(int64_t first, int64_t last) {
    Value *query = positions({0, 1, 3}), *key = positions({0, 1, 2});
    Value* begin = node(graph, "Add", {query, integer(graph, first)});
    Value* end = node(graph, "Add", {query, integer(graph, last)});
    Value* near = node(graph, "GreaterOrEqual", {key, begin});
    Value* seen = node(graph, "And", {near, node(graph, "LessOrEqual", {key, end})});
    Value* mask = node(graph, "Where", {seen, number(graph, 0), number(graph, -3.4e38)});
    return raised(attend(node(graph, "Add", {scaled_scores(), mask}), v));
  }
};

TEST_F(WindowMask, behind_the_query_becomes_attributes) {
  const Node* attention = in_window(-3, 0);
  EXPECT_EQ(attention->get_int("is_causal", 0), 1);
  EXPECT_EQ(attention->get_int("left_window_size", -1), 3);
  EXPECT_EQ(attention->get_int("right_window_size", -1), -1);
  EXPECT_EQ(attention->inputs.size(), 3u);
}

TEST_F(WindowMask, around_the_query_becomes_attributes) {
  const Node* attention = in_window(-1, 2);
  EXPECT_EQ(attention->get_int("is_causal", 0), 0);
  EXPECT_EQ(attention->get_int("left_window_size", -1), 1);
  EXPECT_EQ(attention->get_int("right_window_size", -1), 2);
  EXPECT_EQ(attention->inputs.size(), 3u);
}

TEST_F(WindowMask, without_the_query_itself_stays_a_mask) {
  const Node* attention = in_window(-3, -1);
  EXPECT_EQ(attention->get_int("left_window_size", -1), -1);
  EXPECT_EQ(attention->inputs.size(), 4u);
}

/// A table of 9 queries for each of two sequences. A query sees its own position and the two before it; one element, in
/// a row of all 18, may be flipped.
class WindowTable : public SpeltAttention {
 protected:
  const Node* masked(int64_t keys, int64_t row = -1, int64_t column = -1) {
    Tensor table = Tensor::zeros(DType::boolean, {2, 1, 9, keys});
    for (int64_t i = 0; i < 18; ++i)
      for (int64_t j = 0; j < keys; ++j)
        table.mutable_data()[i * keys + j] = std::byte{(j <= i % 9 && j >= i % 9 - 2) != (i == row && j == column)};
    q = input(graph, "q9", {"2", "6", "9", "16"});
    k = v = input(graph, "kv", {"2", "6", std::to_string(keys), "16"});
    Value* y = node(graph, "Attention", {q, k, v, graph.add_constant("table", table)}, "y");
    return raised(y);
  }
};

TEST_F(WindowTable, becomes_attributes) {
  const Node* attention = masked(9);
  EXPECT_EQ(attention->get_int("left_window_size", -1), 2);
  EXPECT_FALSE(attention->input(3));
}

TEST_F(WindowTable, stays_with_an_element_that_differs) {
  EXPECT_TRUE(masked(9, 7, 1)->input(3));
}

TEST_F(WindowTable, stays_if_sequences_differ) {
  EXPECT_TRUE(masked(9, 17, 0)->input(3));
}

TEST_F(WindowTable, stays_where_keys_are_not_at_the_positions_of_queries) {
  EXPECT_TRUE(masked(11)->input(3));
}

TEST_F(AttentionMasks, select_by_any_predicate_is_a_bool_mask_only_with_infinity) {
  Value* predicate = input(graph, "allowed", {"b", "1", "s", "s"}, DType::boolean);
  const Node* attention =
      raised(attend(node(graph, "Where", {predicate, scaled_scores(), number(graph, -INFINITY)}), v));
  EXPECT_EQ(attention->op_type, "Attention");
  EXPECT_EQ(attention->inputs.at(3), predicate);
}

TEST_F(AttentionMasks, select_with_a_finite_value_stays_spelt_out) {
  // A row without any allowed key is uniform there, but undefined under a bool mask.
  Value* predicate = input(graph, "allowed", {"b", "1", "s", "s"}, DType::boolean);
  raised(attend(node(graph, "Where", {predicate, scaled_scores(), number(graph, -3.4e38)}), v));
  EXPECT_FALSE(histogram(graph).contains("Attention"));
}

TEST_F(AttentionMasks, a_cap_around_the_mask_stays_spelt_out) {
  Value* masked = node(graph, "Add", {scaled_scores(), input(graph, "mask", {"b", "1", "s", "s"})});
  Value* tanh = node(graph, "Tanh", {node(graph, "Div", {masked, number(graph, 50)})});
  raised(attend(node(graph, "Mul", {tanh, number(graph, 50)}), v));
  EXPECT_FALSE(histogram(graph).contains("Attention"));
}

// A table of the model beside a mask of the library, as GPT-Neo has them; and positions that add to scores, as ALiBi's.
TEST_F(AttentionMasks, masks_of_several_kinds_are_one) {
  Value* lowest = number(graph, -3.4e38);
  Value* bias =
      node(graph, "Mul",
           {state(graph, "slopes", {6, 1, 1}), node(graph, "Cast", {positions({0, 1})}, "", {{"to", int64_t{1}}})});
  Value* inner = node(graph, "Where", {causal("LessOrEqual", false), scaled_scores(), lowest});
  Value* library = node(graph, "Where", {causal("Greater", false), lowest, number(graph, 0)});
  const Node* attention = raised(attend(node(graph, "Add", {node(graph, "Add", {bias, inner}), library}), v));
  EXPECT_EQ(histogram(graph)["Attention"], 1);
  EXPECT_EQ(attention->get_int("is_causal", 0), 1);
  EXPECT_TRUE(made_by(attention->inputs.at(3), "Mul"));
}

// A row whose keys are all hidden, by one mask or the other, has weights where they hide by finite numbers.
TEST_F(AttentionMasks, finite_masks_beside_one_of_padding_stay) {
  Value* padding = input(graph, "padding", {"b", "1", "1", "s"});
  Value* inner = node(graph, "Where", {causal("LessOrEqual", false), scaled_scores(), number(graph, -3.4e38)});
  raised(attend(node(graph, "Add", {inner, padding}), v));
  EXPECT_FALSE(histogram(graph).contains("Attention"));
}

// The file may hold what hides keys, too.
TEST_F(AttentionMasks, finite_masks_beside_one_of_parameters_stay_if_that_may_hide) {
  Value* padding = state(graph, "padding", {6, 1, 1});
  padding->data = Tensor::of<float>(DType::float32, {6, 1, 1}, {0, 0, -3.4e38F, 0, 0, 0});
  Value* inner = node(graph, "Where", {causal("LessOrEqual", false), scaled_scores(), number(graph, -3.4e38)});
  raised(attend(node(graph, "Add", {inner, padding}), v));
  EXPECT_FALSE(histogram(graph).contains("Attention"));
}

TEST_F(AttentionMasks, a_lowest_number_over_a_mask_of_padding_stays) {
  Value* padded = node(graph, "Add", {scaled_scores(), input(graph, "padding", {"b", "1", "1", "s"})});
  raised(attend(node(graph, "Max", {padded, number(graph, -3.4e38)}), v));
  EXPECT_FALSE(histogram(graph).contains("Attention"));
}

// As exporters of older models keep sums of scores and masks from becoming infinite.
TEST_F(AttentionMasks, a_lowest_number_under_all_scores_goes) {
  Value* mask = node(graph, "Where", {causal("LessOrEqual", false), number(graph, 0), number(graph, -3.4e38)});
  Value* masked = node(graph, "Add", {scaled_scores(), mask});
  const Node* attention = raised(attend(node(graph, "Max", {masked, number(graph, -3.4e38)}), v));
  EXPECT_EQ(histogram(graph), (Histogram{{"Attention", 1}}));
  EXPECT_EQ(attention->get_int("is_causal", 0), 1);
}

TEST_F(AttentionMasks, a_higher_number_under_all_scores_stays) {
  Value* mask = node(graph, "Where", {causal("LessOrEqual", false), number(graph, 0), number(graph, -3.4e38)});
  Value* masked = node(graph, "Add", {scaled_scores(), mask});
  raised(attend(node(graph, "Max", {masked, number(graph, -10)}), v));
  EXPECT_FALSE(histogram(graph).contains("Attention"));
}

TEST_F(AttentionMasks, bool_and_added_masks_are_one) {
  Value* allowed = input(graph, "allowed", {"b", "1", "s", "s"}, DType::boolean);
  Value* also = input(graph, "also", {"b", "1", "1", "s"}, DType::boolean);
  Value* bias = input(graph, "bias", {"6", "s", "s"});
  Value* some = node(graph, "Where", {allowed, scaled_scores(), number(graph, -INFINITY)});
  Value* fewer = node(graph, "Where", {also, some, number(graph, -INFINITY)});
  const Node* attention = raised(attend(node(graph, "Add", {fewer, bias}), v));
  EXPECT_EQ(histogram(graph), (Histogram{{"And", 1}, {"Where", 1}, {"Attention", 1}}));
  EXPECT_EQ(attention->inputs.at(3)->dtype(), DType::float32);
  EXPECT_EQ(to_string(attention->inputs.at(3)->shape()), "[b, 6, s, s]");
}

TEST_F(AttentionMasks, a_scalar_added_to_all_scores_is_a_mask_over_the_keys) {
  const Node* attention = raised(attend(node(graph, "Add", {scaled_scores(), number(graph, 3)}), v));
  ASSERT_EQ(attention->op_type, "Attention");
  EXPECT_EQ(to_string(attention->inputs[3]->shape()), "[1, s]");
}

}  // namespace
}  // namespace tessera::rewrite

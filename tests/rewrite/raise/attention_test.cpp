#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "rewrite/build.h"
#include "rewrite/spelt_attention.h"
#include "tessera/ir/text.h"

namespace tessera::rewrite {
namespace {

using testing::ElementsAre;
using Histogram = std::map<std::string, int>;

class RaiseAttention : public SpeltAttention {};

TEST_F(RaiseAttention, scale_after_the_product) {
  const Node* attention = raised(attend(scaled_scores(), v));
  EXPECT_EQ(histogram(graph), (Histogram{{"Attention", 1}}));
  EXPECT_EQ(attention->inputs, (std::vector<Value*>{q, k, v}));
  EXPECT_EQ(attention->get_float("scale", 0), 0.25f);
  EXPECT_EQ(attention->get_int("is_causal", -1), 0);
}

TEST_F(RaiseAttention, scale_shared_between_query_and_key) {
  Value* query = node(graph, "Mul", {q, number(graph, 0.5)});
  Value* key = node(graph, "Div", {turned(k), number(graph, 2)});
  const Node* attention = raised(attend(node(graph, "MatMul", {query, key}), v));
  EXPECT_EQ(histogram(graph), (Histogram{{"Attention", 1}}));
  EXPECT_EQ(attention->get_float("scale", 0), 0.25f);
}

TEST_F(RaiseAttention, transposes_of_the_key_merge) {
  Value* flat_key = input(graph, "flat_key", {"b", "s", "6", "16"});
  Value* key = node(graph, "Transpose", {flat_key}, "", {{"perm", std::vector<int64_t>{0, 2, 3, 1}}});
  const Node* attention = raised(attend(node(graph, "MatMul", {q, key}), v));
  EXPECT_EQ(histogram(graph), (Histogram{{"Attention", 1}, {"Transpose", 1}}));
  EXPECT_THAT(attention->inputs[1]->producer->get_ints("perm"), ElementsAre(0, 2, 1, 3));
  EXPECT_EQ(attention->get_float("scale", 0), 1.0f);
}

/// As PyTorch's exporters write scaled_dot_product_attention: a root of the scale on either side, and zeros in place of
/// the weights of a row without any key.
class GuardedSoftmax : public RaiseAttention {
 protected:
  Value* weights(Value* mask) {
    Value* root = number(graph, 0.5);
    Value* product = node(graph, "MatMul", {node(graph, "Mul", {q, root}), node(graph, "Mul", {turned(k), root})});
    Value* logits = mask ? node(graph, "Add", {product, mask}) : product;
    return node(graph, "Softmax", {logits}, "", {{"axis", int64_t{-1}}});
  }
  Value* guarded(Value* tested, Value* instead, Value* kept) {
    return node(graph, "Where", {node(graph, "IsNaN", {tested}), instead, kept});
  }
  bool is_raised(Value* guarded_weights) {
    raised(node(graph, "MatMul", {guarded_weights, v}, "y"));
    return histogram(graph).contains("Attention");
  }
};

TEST_F(GuardedSoftmax, guard_goes_with_the_softmax) {
  Value* mask = node(graph, "Where", {causal("LessOrEqual", false), number(graph, 0), number(graph, -INFINITY)});
  Value* w = weights(mask);
  const Node* attention = raised(node(graph, "MatMul", {guarded(w, number(graph, 0), w), v}, "y"));
  EXPECT_EQ(histogram(graph), (Histogram{{"Attention", 1}}));
  EXPECT_EQ(attention->inputs, (std::vector<Value*>{q, k, v}));
  EXPECT_EQ(attention->get_float("scale", 0), 0.25f);
  EXPECT_EQ(attention->get_int("is_causal", 0), 1);
}

TEST_F(GuardedSoftmax, guard_with_a_mask_keeps_the_mask) {
  Value* mask = input(graph, "mask", {"b", "1", "s", "s"});
  Value* w = weights(mask);
  const Node* attention = raised(
      node(graph, "MatMul", {guarded(w, graph.add_constant("zero", Tensor::zeros(DType::float32, {1})), w), v}, "y"));
  EXPECT_EQ(histogram(graph), (Histogram{{"Attention", 1}}));
  EXPECT_EQ(attention->inputs.at(3), mask);
}

TEST_F(GuardedSoftmax, another_value_than_zero_is_no_guard) {
  Value* w = weights(nullptr);
  EXPECT_FALSE(is_raised(guarded(w, number(graph, 1), w)));
}

TEST_F(GuardedSoftmax, a_test_of_another_value_is_no_guard) {
  EXPECT_FALSE(is_raised(guarded(input(graph, "other", {"b", "6", "s", "s"}), number(graph, 0), weights(nullptr))));
}

TEST_F(GuardedSoftmax, the_reverse_select_is_no_guard) {
  Value* w = weights(nullptr);
  EXPECT_FALSE(is_raised(guarded(w, w, number(graph, 0))));
}

TEST_F(GuardedSoftmax, weights_that_something_else_reads_block) {
  Value* w = weights(nullptr);
  graph.outputs = {node(graph, "MatMul", {guarded(w, number(graph, 0), w), v}, "y"), node(graph, "Neg", {w}, "seen")};
  fold(model);
  raise_attention(model);
  EXPECT_FALSE(histogram(graph).contains("Attention"));
}

TEST_F(GuardedSoftmax, a_test_that_something_else_reads_blocks) {
  Value* w = weights(nullptr);
  Value* chosen = guarded(w, number(graph, 0), w);
  graph.outputs = {node(graph, "MatMul", {chosen, v}, "y"), node(graph, "Not", {chosen->producer->inputs[0]}, "seen")};
  fold(model);
  raise_attention(model);
  EXPECT_FALSE(histogram(graph).contains("Attention"));
}

/// As gpt-oss is exported: a column of sinks beside the scores, of which the largest is subtracted first.
class SunkSoftmax : public RaiseAttention {
 protected:
  Value* column(std::initializer_list<int64_t> shape = {1, 6, 1, 1}) {
    Value* repeated = graph.add_expression("", {Expr::symbol("b"), 6, Expr::symbol("s"), 1});
    return node(graph, "Expand",
                {node(graph, "Reshape", {input(graph, "sinks", {"6"}), ints(graph, shape)}), repeated});
  }
  Value* beside(Value* logits, Value* sinks) {
    return node(graph, "Concat", {logits, sinks}, "", {{"axis", int64_t{-1}}});
  }
  Value* less_the_largest(Value* all) {
    return node(graph, "Sub",
                {all, node(graph, "ReduceMax", {all, ints(graph, {-1})}, "", {{"keepdims", int64_t{1}}})});
  }
  const Node* cut(Value* all, int64_t from = 0, int64_t to = -1) {
    Value* weights = node(graph, "Softmax", {all}, "", {{"axis", int64_t{-1}}});
    Value* kept = node(graph, "Slice", {weights, ints(graph, {from}), ints(graph, {to}), ints(graph, {3})});
    return raised(node(graph, "MatMul", {kept, v}, "y"));
  }
};

TEST_F(SunkSoftmax, becomes_an_operand) {
  const Node* attention = cut(less_the_largest(beside(scaled_scores(), column())));
  EXPECT_EQ(histogram(graph), (Histogram{{"Attention", 1}, {"Reshape", 2}}));
  ASSERT_EQ(attention->inputs.size(), 9u);
  EXPECT_EQ(to_string(attention->inputs[8]->shape()), "[6]");
  EXPECT_EQ(attention->get_float("scale", 0), 0.25f);
}

TEST_F(SunkSoftmax, needs_no_largest_one_and_keeps_the_mask) {
  Value* mask = input(graph, "mask", {"b", "1", "s", "s"});
  const Node* attention = cut(beside(node(graph, "Add", {scaled_scores(), mask}), column()));
  ASSERT_EQ(attention->op_type, "Attention");
  EXPECT_EQ(attention->inputs[3], mask);
}

TEST_F(SunkSoftmax, the_largest_one_of_all_heads_is_no_constant_of_a_row) {
  Value* all = beside(scaled_scores(), column());
  Value* most = node(graph, "ReduceMax", {all, ints(graph, {1})}, "", {{"keepdims", int64_t{1}}});
  EXPECT_EQ(cut(node(graph, "Sub", {all, most}))->op_type, "MatMul");
}

TEST_F(SunkSoftmax, another_column_stays) {
  EXPECT_EQ(cut(beside(scaled_scores(), input(graph, "column", {"b", "6", "s", "1"})))->op_type, "MatMul");
}

TEST_F(SunkSoftmax, weights_without_the_first_key_stay) {
  EXPECT_EQ(cut(beside(scaled_scores(), column()), 1, INT64_MAX)->op_type, "MatMul");
}

TEST_F(SunkSoftmax, sinks_that_come_first_stay) {
  EXPECT_EQ(cut(beside(column(), scaled_scores()))->op_type, "MatMul");
}

TEST_F(RaiseAttention, keys_turned_as_matrices_are_turned_as_they_are) {
  auto repeated = [&](Value* x, Shape shape) {
    Value* column = node(graph, "Unsqueeze", {x, ints(graph, {2})});
    Value* expanded = node(graph, "Expand", {column, ints(graph, {1, 1, 3, 1, 1})});
    return node(graph, "Reshape", {expanded, graph.add_expression("", std::move(shape))});
  };
  const Expr b = Expr::symbol("b"), s = Expr::symbol("s");
  Value* key = input(graph, "few_keys", {"b", "2", "s", "16"});
  Value* value = input(graph, "few_values", {"b", "2", "s", "16"});
  Value* flat = node(graph, "Reshape", {repeated(key, {b, 6, s, 16}), graph.add_expression("", {6 * b, s, 16})});
  Value* turned_flat = node(graph, "Transpose", {flat}, "", {{"perm", std::vector<int64_t>{0, 2, 1}}});
  Value* turned_key = node(graph, "Reshape", {turned_flat, graph.add_expression("", {b, 6, 16, s})});
  const Node* attention = raised(attend(node(graph, "MatMul", {q, turned_key}), repeated(value, {b, 6, s, 16})));
  EXPECT_EQ(histogram(graph), (Histogram{{"Attention", 1}}));
  EXPECT_EQ(attention->inputs, (std::vector<Value*>{q, key, value}));
}

// As Gemma caps its scores, before the mask.
TEST_F(RaiseAttention, capped_scores_have_an_attribute) {
  const auto capped = [&](Value* x, double by, double times) {
    Value* tanh = node(graph, "Tanh", {node(graph, "Div", {x, number(graph, by)})});
    return node(graph, "Mul", {tanh, number(graph, times)});
  };
  Value* mask = node(graph, "Where", {causal("LessOrEqual", false), number(graph, 0), number(graph, -3.4e38)});
  const Node* attention = raised(attend(node(graph, "Add", {capped(scaled_scores(), 50, 25), mask}), v));
  EXPECT_EQ(histogram(graph), (Histogram{{"Attention", 1}}));
  EXPECT_EQ(attention->get_float("softcap", 0), 25);
  EXPECT_EQ(attention->get_float("scale", 0), 0.125F) << "25 · tanh(x / 50) = 25 · tanh(0.5 · x / 25)";
  EXPECT_EQ(attention->get_int("is_causal", 0), 1);
}

// As torch.bmm and baddbmm have batch and heads, merged.
TEST_F(RaiseAttention, merged_batches_and_heads_come_apart) {
  const Expr b = Expr::symbol("b"), s = Expr::symbol("s");
  const auto merged = [&](Value* x) { return node(graph, "Reshape", {x, graph.add_expression("", {6 * b, s, 16})}); };
  for (const bool with_bias : {false, true}) {
    SetUp();
    Value* turned_key = node(graph, "Transpose", {merged(k)}, "", {{"perm", std::vector<int64_t>{0, 2, 1}}});
    Value* scores = node(graph, "Mul", {node(graph, "MatMul", {merged(q), turned_key}), number(graph, 0.25)});
    if (with_bias) {
      scores = node(graph, "Add", {input(graph, "bias", {"6*b", "s", "s"}), scores});
      scores = node(graph, "Reshape", {scores, graph.add_expression("", {b, 6, s, s})});
      scores = node(graph, "Add", {scores, input(graph, "mask", {"b", "1", "s", "s"})});
    }
    Value* weights = node(graph, "Softmax", {scores}, "", {{"axis", int64_t{-1}}});
    if (with_bias) weights = node(graph, "Reshape", {weights, graph.add_expression("", {6 * b, s, s})});
    Value* rows = node(graph, "MatMul", {weights, merged(v)});
    Value* y = node(graph, "Reshape", {rows, graph.add_expression("", {b, 6, s, 16})}, with_bias ? "y2" : "y");
    if (!with_bias) {
      const Node* attention = raised(y);
      EXPECT_EQ(attention->op_type, "Attention");
      EXPECT_EQ(attention->inputs, (std::vector<Value*>{q, k, v}));
      continue;
    }
    graph.outputs.push_back(y);
    fold(model);
    canonicalize(model);
    raise_attention(model);
    EXPECT_EQ(histogram(graph)["Attention"], 2);
    EXPECT_EQ(histogram(graph)["MatMul"], 0);
  }
}

TEST_F(RaiseAttention, repeated_heads_are_not_repeated) {
  auto repeated = [&](Value* x) {
    Value* column = node(graph, "Unsqueeze", {x, ints(graph, {2})});
    Value* expanded = node(graph, "Expand", {column, ints(graph, {1, 1, 3, 1, 1})});
    return node(graph, "Reshape", {expanded, graph.add_expression("", {Expr::symbol("b"), 6, Expr::symbol("s"), 16})});
  };
  Value* key = input(graph, "few_keys", {"b", "2", "s", "16"});
  Value* value = input(graph, "few_values", {"b", "2", "s", "16"});
  Value* logits = node(graph, "MatMul", {q, turned(repeated(key))});
  const Node* attention = raised(attend(logits, repeated(value)));
  EXPECT_EQ(histogram(graph), (Histogram{{"Attention", 1}}));
  EXPECT_EQ(attention->inputs, (std::vector<Value*>{q, key, value}));
}

TEST_F(RaiseAttention, exporters_own_attention_loses_repetition_and_causal_mask) {
  auto repeated = [&](Value* x) {
    Value* column = node(graph, "Unsqueeze", {x, ints(graph, {2})});
    Value* expanded = node(graph, "Expand", {column, ints(graph, {1, 1, 2, 1, 1})});
    return node(graph, "Reshape", {expanded, graph.add_expression("", {Expr::symbol("b"), 6, Expr::symbol("s"), 16})});
  };
  Value* key = input(graph, "few_keys", {"b", "3", "s", "16"});
  Value* value = input(graph, "few_values", {"b", "3", "s", "16"});
  const Node* attention = raised(node(
      graph, "Attention", {q, repeated(key), repeated(value), causal("LessOrEqual", false)}, "y", {{"scale", 0.25f}}));
  EXPECT_EQ(histogram(graph), (Histogram{{"Attention", 1}}));
  EXPECT_EQ(attention->get_int("is_causal", 0), 1);
  EXPECT_EQ(attention->inputs[1], key);
}

TEST_F(RaiseAttention, operands_of_rank_3_get_their_heads_as_a_dimension) {
  Value* x = input(graph, "x", {"b", "s", "96"});
  raised(node(graph, "Attention", {x, x, x}, "y", {{"q_num_heads", int64_t{6}}, {"kv_num_heads", int64_t{6}}}));
  EXPECT_THAT(chain_to(graph.outputs[0]), ElementsAre("Reshape", "Transpose", "Attention", "Transpose", "Reshape"));
  EXPECT_EQ(to_string(graph.outputs[0]->shape()), "[b, s, 96]");
}

TEST_F(RaiseAttention, float64_stays_spelt_out) {
  for (Value** operand : {&q, &k, &v}) *operand = node(graph, "Cast", {*operand}, "", {{"to", int64_t{11}}});
  raised(attend(scores(), v));
  EXPECT_FALSE(histogram(graph).contains("Attention"));
}

TEST_F(RaiseAttention, probabilities_that_are_an_output_block) {
  Value* probabilities = node(graph, "Softmax", {scaled_scores()}, "probabilities", {{"axis", int64_t{-1}}});
  Value* y = node(graph, "MatMul", {probabilities, v}, "y");
  graph.outputs = {y, probabilities};
  fold(model);
  raise_attention(model);
  EXPECT_FALSE(histogram(graph).contains("Attention"));
}

TEST_F(RaiseAttention, products_that_broadcast_batches_or_heads_stay) {
  using Dims = std::vector<std::string>;
  const Dims whole{"b", "6", "s", "16"}, one_batch{"1", "6", "s", "16"}, one_head{"b", "1", "s", "16"};
  int cases = 0;
  for (const auto& [query, key, value, becomes] : std::vector<std::tuple<Dims, Dims, Dims, bool>>{
           {one_batch, whole, whole, false},
           {whole, one_batch, whole, false},
           {whole, whole, one_batch, false},
           {one_head, whole, whole, false},
           {whole, one_head, whole, false},
           {whole, whole, one_head, false},
           {whole, one_head, one_head, true},
           {whole, whole, whole, true},
       }) {
    OnnxModel other;
    Graph& g = *other.graph;
    Value* turned = node(g, "Transpose", {input(g, "k", key)}, "", {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    Value* logits = node(g, "MatMul", {input(g, "q", query), turned});
    Value* weights = node(g, "Softmax", {logits}, "", {{"axis", int64_t{-1}}});
    g.outputs = {node(g, "MatMul", {weights, input(g, "v", value)}, "y")};
    fold(other);
    raise_attention(other);
    EXPECT_EQ(histogram(g)["Attention"], becomes ? 1 : 0) << "case " << cases;
    EXPECT_EQ(to_string(g.outputs[0]->shape()), "[b, 6, s, 16]");
    ++cases;
  }
}

}  // namespace
}  // namespace tessera::rewrite

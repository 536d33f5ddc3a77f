// Decoders whose caches become states.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/rewrite/decoder.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::rewrite {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A decoder of one head, whose nodes `mask` make `seen` [sequence, past + sequence] of the places of keys and queries.
std::string cached(const std::string& mask) {
  return R"(<ir_version: 10, opset_import: ["" : 24]>
    g (int64[batch, sequence] input_ids, float[batch, 1, past, 4] past)
      => (float[batch, sequence, 9] logits, float[batch, 1, "past + sequence", 4] present) <
      float[9, 4] table, float[4, 9] head, int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[1] first = {1},
      int64[1] places = {-1}> {
      x = Gather <axis = 0> (table, input_ids)
      heads = Unsqueeze (x, first)
      present = Concat <axis = 2> (past, heads)
      whole = Shape <start = 2, end = 3> (present)
      before = Shape <start = 2, end = 3> (past)
      all = Squeeze (whole)
      held = Squeeze (before)
      keys = Range (zero, all, one)
      own = Range (held, all, one)
      queries = Unsqueeze (own, places)
      )" +
         mask + R"(
      y = Attention (heads, present, present, seen)
      rows = Squeeze (y, first)
      logits = MatMul (rows, head)
    })";
}

// A decoder whose positions are counted along its mask.
std::string counted(const std::string& positions) {
  return R"(<ir_version: 10, opset_import: ["" : 24]>
    g (int64[batch, sequence] input_ids, int64[batch, "past + sequence"] attention_mask, float[batch, 1, past, 4] past)
      => (float[batch, sequence, 9] logits, float[batch, 1, "past + sequence", 4] present) <
      float[9, 4] table, float[32, 4] placed, float[4, 9] head, int64 zero = {0}, int64 one = {1}, int64[1] first = {1},
      int64[1] places = {-1}, int64[1] far = {9223372036854775807}> {
      fresh = Shape <start = 1, end = 2> (input_ids)
      )" +
         positions + R"(
      e = Gather <axis = 0> (table, input_ids)
      p = Gather <axis = 0> (placed, positions)
      x = Add (e, p)
      heads = Unsqueeze (x, first)
      present = Concat <axis = 2> (past, heads)
      whole = Shape <start = 2, end = 3> (present)
      before = Shape <start = 2, end = 3> (past)
      all = Squeeze (whole)
      held = Squeeze (before)
      keys = Range (zero, all, one)
      own = Range (held, all, one)
      queries = Unsqueeze (own, places)
      seen = LessOrEqual (keys, queries)
      y = Attention (heads, present, present, seen)
      rows = Squeeze (y, first)
      logits = MatMul (rows, head)
    })";
}

constexpr const char* kCountedFromTheEnd = R"(sums = CumSum (attention_mask, one)
      spots = Sub (sums, one)
      back = Neg (fresh)
      positions = Slice (spots, back, far, first))";
constexpr const char* kCountedInAll = R"(counts = ReduceSum <keepdims = 1> (attention_mask, first)
      earlier = Sub (counts, fresh)
      count = Squeeze (fresh)
      index = Range (zero, count, one)
      positions = Add (earlier, index))";

HeldDecoder held(const std::string& text, int64_t batch = 2) {
  OnnxModel model = parse_text(text);
  rewrite_model(model);
  DecoderPorts ports{.ids = "input_ids", .logits = "logits"};
  if (model.graph->find("attention_mask")) ports.mask = "attention_mask";
  if (model.graph->find("past")) ports.caches = {{"past", "present"}};
  return hold_caches(model, ports, batch, 16);
}

const Node* only(const Graph& graph, std::string_view type) {
  const Node* found = nullptr;
  for (const auto& node : graph.nodes())
    if (node->is(type)) {
      EXPECT_FALSE(found) << "two nodes " << type;
      found = node.get();
    }
  EXPECT_TRUE(found) << "no node " << type;
  return found;
}

TEST(HoldCaches, writes_what_is_new_into_a_state) {
  const HeldDecoder made = held(cached("seen = LessOrEqual (keys, queries)"));
  const Graph& graph = *made.model.graph;
  EXPECT_THAT(made.caches, ElementsAre("past"));
  EXPECT_FALSE(made.given);
  EXPECT_TRUE(made.ragged);
  const Value* state = graph.find("past");
  ASSERT_TRUE(state && state->kind == ValueKind::state && state->next);
  EXPECT_EQ(to_string(state->shape()), "[2, 1, 16, 4]");
  const Node* written = only(graph, "TensorScatter");
  EXPECT_EQ(state->next, written->outputs[0]);
  EXPECT_EQ(written->inputs[0], state);
  EXPECT_EQ(written->inputs[2], graph.find(kHeld));
  const Node* attention = only(graph, "Attention");
  EXPECT_EQ(attention->inputs[1], written->outputs[0]);
  EXPECT_EQ(attention->input(3), nullptr) << "the mask hides later keys only";
  EXPECT_EQ(attention->get_int("is_causal", 0), 1);
  EXPECT_EQ(to_string(attention->inputs.at(6)->shape()), "[2]");
  ASSERT_EQ(graph.outputs.size(), 1u);
  EXPECT_EQ(to_string(graph.outputs[0]->shape()), "[2, 1, 9]") << "of one token of each text";
}

TEST(HoldCaches, keeps_a_mask_that_hides_more) {
  const std::string window = cached(R"(late = LessOrEqual (keys, queries)
      back = Sub (queries, two)
      near = Greater (keys, back)
      seen = And (late, near))");
  const HeldDecoder made = held(window, 1);
  const Node* attention = only(*made.model.graph, "Attention");
  ASSERT_TRUE(attention->input(3));
  EXPECT_EQ(attention->input(3)->shape().back(), Expr(16)) << "over the whole capacity";
  EXPECT_EQ(attention->get_int("is_causal", 0), 0);
  EXPECT_FALSE(held(window, 2).ragged) << "it might show a text what fills it up";
}

TEST(HoldCaches, refuses_a_mask_that_joins_earlier_tokens_with_new_ones) {
  try {
    held(cached(R"(fresh = Shape <start = 1, end = 2> (input_ids)
      count = Squeeze (fresh)
      range = Range (zero, count, one)
      rows_of = Unsqueeze (range, places)
      new = LessOrEqual (range, rows_of)
      extents = Concat <axis = 0> (fresh, before)
      nothing = ConstantOfShape (extents)
      none = Cast <to = 9> (nothing)
      old = Not (none)
      seen = Concat <axis = 1> (old, new))"));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("of earlier tokens without the new ones"));
  }
}

// A mask spans the whole capacity, so that its sum is not the number of tokens, and its end not theirs.
TEST(HoldCaches, refuses_positions_that_are_counted_along_the_mask) {
  for (const char* positions : {kCountedFromTheEnd, kCountedInAll}) {
    try {
      held(counted(positions));
      ADD_FAILURE() << "no error: " << positions;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      EXPECT_THAT(error.what(), HasSubstr("combines all tokens along dimension 1")) << positions;
    }
  }
}

// What fills up a short text must not be seen, so texts of one length run together.
TEST(HoldCaches, keeps_lengths_apart_where_new_tokens_meet) {
  std::string mixing = cached("seen = LessOrEqual (keys, queries)");
  mixing.replace(mixing.find("rows = Squeeze (y, first)"), 25, "apart = Squeeze (y, first) rows = CumSum (apart, one)");
  EXPECT_FALSE(held(mixing, 2).ragged);
  EXPECT_TRUE(held(mixing, 1).ragged);
}

TEST(HoldCaches, gives_caches_to_a_model_without) {
  constexpr std::string_view kText = R"(<ir_version: 10, opset_import: ["" : 24]>
    g (int64[batch, sequence] input_ids) => (float[batch, sequence, 9] logits)
      <float[9, 4] table, float[32, 4] placed, float[4, 9] head, int64 zero = {0}, int64 one = {1}, int64[1] first = {1},
       int64[2] row = {1, -1}> {
      x = Gather <axis = 0> (table, input_ids)
      length = Shape <start = 1, end = 2> (input_ids)
      all = Squeeze (length)
      range = Range (zero, all, one)
      positions = Reshape (range, row)
      p = Gather <axis = 0> (placed, positions)
      z = Add (x, p)
      heads = Unsqueeze (z, first)
      y = Attention <is_causal = 1> (heads, heads, heads)
      rows = Squeeze (y, first)
      logits = MatMul (rows, head)
    })";
  const HeldDecoder made = held(std::string(kText));
  EXPECT_TRUE(made.given);
  EXPECT_TRUE(made.ragged) << "each text has positions of its own";
  EXPECT_THAT(made.caches, ElementsAre("cache.0.key", "cache.0.value"));
  EXPECT_EQ(histogram(*made.model.graph)["TensorScatter"], 2);
  // A sum over the text would need a cache of its own.
  std::string mixed(kText);
  mixed.replace(mixed.find("z = Add (x, p)"), 14, "w = Add (x, p) z = CumSum (w, one)");
  try {
    held(mixed);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), HasSubstr("mixes tokens along dimension 1"));
  }
}

}  // namespace
}  // namespace tessera::rewrite

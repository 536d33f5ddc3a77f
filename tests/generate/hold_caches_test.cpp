// Decoders whose caches become states.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generate/decoder_texts.h"
#include "rewrite/build.h"
#include "tessera/base/error.h"
#include "tessera/generate/held_decoder.h"
#include "tessera/ir/text.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::generate {
namespace {

using test::cached_decoder;
using test::counted_decoder;
using test::kCountedFromTheEnd;
using test::kCountedInAll;
using testing::ElementsAre;
using testing::HasSubstr;

HeldDecoder held(const std::string& text, int64_t batch = 2) {
  const OnnxModel model = parse_text(text);
  DecoderPorts ports{.ids = "input_ids", .logits = "logits"};
  if (model.graph->find("attention_mask")) ports.mask = "attention_mask";
  if (model.graph->find("past")) ports.caches = {{"past", "present"}};
  if (model.graph->find("past_key_0"))
    ports.caches = {{"past_key_0", "present_key_0"}, {"past_value_0", "present_value_0"}};
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
  const HeldDecoder made = held(cached_decoder(test::kCausalMask));
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
  const std::string window = cached_decoder(R"(late = LessOrEqual (keys, queries)
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
    held(cached_decoder(R"(fresh = Shape <start = 1, end = 2> (input_ids)
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
    EXPECT_THAT(error.what(), HasSubstr("from earlier tokens without the new ones"));
  }
}

// A mask spans the whole capacity, so that its sum is not the number of tokens, and its end not theirs.
TEST(HoldCaches, refuses_positions_that_are_counted_along_the_mask) {
  for (const char* positions : {kCountedFromTheEnd, kCountedInAll}) {
    try {
      held(counted_decoder(positions));
      ADD_FAILURE() << "no error: " << positions;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      EXPECT_THAT(error.what(), HasSubstr("combines all tokens along dimension 1")) << positions;
    }
  }
}

// What fills up a short text must not be seen, so texts of one length run together.
TEST(HoldCaches, keeps_lengths_apart_where_new_tokens_meet) {
  std::string mixing = cached_decoder(test::kCausalMask);
  mixing.replace(mixing.find("rows = Squeeze (y, first)"), 25, "apart = Squeeze (y, first) rows = CumSum (apart, one)");
  EXPECT_FALSE(held(mixing, 2).ragged);
  EXPECT_TRUE(held(mixing, 1).ragged);
}

constexpr std::string_view kWithoutCaches = R"(<ir_version: 10, opset_import: ["" : 24]>
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

TEST(HoldCaches, gives_caches_to_a_model_without) {
  const HeldDecoder made = held(std::string(kWithoutCaches));
  EXPECT_TRUE(made.given);
  EXPECT_TRUE(made.ragged) << "each text has positions of its own";
  EXPECT_THAT(made.caches, ElementsAre("cache.0.key", "cache.0.value"));
  EXPECT_EQ(rewrite::histogram(*made.model.graph)["TensorScatter"], 2);
  // A sum over the text would need a cache of its own.
  std::string mixed(kWithoutCaches);
  mixed.replace(mixed.find("z = Add (x, p)"), 14, "w = Add (x, p) z = CumSum (w, one)");
  try {
    held(mixed);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), HasSubstr("mixes tokens along dimension 1"));
  }
}

// ALiBi adds a multiple of each key's place.
TEST(HoldCaches, makes_masks_of_the_places_of_keys_as_long_as_caches) {
  const auto with_mask = [](std::string_view nodes) {
    std::string text(kWithoutCaches);
    const std::string attention = "y = Attention <is_causal = 1> (heads, heads, heads)", table = "float[9, 4] table";
    text.replace(text.find(attention), attention.size(),
                 std::string(nodes) + " y = Attention <is_causal = 1> (heads, heads, heads, mask)");
    text.replace(text.find(table), table.size(), table + ", float[1, 1, 1] slopes, float[1, 1, 1, 40] far");
    return text;
  };
  const HeldDecoder made = held(with_mask("keys = Cast <to = 1> (range) mask = Mul (slopes, keys)"));
  EXPECT_TRUE(made.given);
  const Value* mask = only(*made.model.graph, "Attention")->input(3);
  ASSERT_TRUE(mask);
  EXPECT_EQ(mask->shape().back(), Expr(16)) << "over the whole capacity";
  for (const char* other :
       {"last = Sub (all, one) near = Sub (range, last) keys = Cast <to = 1> (near) mask = Mul (slopes, keys)",
        "keys = Cast <to = 1> (range) most = ReduceMax (keys, first) mask = Sub (keys, most)",
        "ends = Shape <start = 1, end = 2> (input_ids) last = Constant <value = int64[1] {3}> () "
        "mask = Slice (far, first, ends, last)"})
    EXPECT_THROW(held(with_mask(other)), Error) << other;
}

std::string refusal(const std::string& text) {
  try {
    held(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user) << error.what();
    return error.what();
  }
  return "no error";
}

// As dynamic NTK does, which lowers its frequencies while a text grows.
TEST(HoldCaches, says_why_frequencies_that_depend_on_the_length_leave_no_caches) {
  std::string text(kWithoutCaches);
  const std::string sum = "z = Add (x, p)";
  text.replace(text.find(sum), sum.size(), "count = Cast <to = 1> (all) slower = Div (p, count) z = Add (x, slower)");
  EXPECT_THAT(refusal(text), HasSubstr("Cast producing 'count' computes with the number of tokens, so that each new "
                                       "token changes the keys and values of those before it"));
}

// What the cache would have dropped is hidden by the mask, so that the cache may keep it.
TEST(HoldCaches, keeps_all_tokens_of_a_window) {
  const HeldDecoder made = held(test::windowed_decoder(7, 8), 1);
  EXPECT_THAT(made.caches, ElementsAre("past"));
  EXPECT_EQ(to_string(made.model.graph->find("past")->shape()), "[1, 1, 16, 4]");
  EXPECT_TRUE(only(*made.model.graph, "Attention")->input(3)) << "the window";
  EXPECT_EQ(rewrite::histogram(*made.model.graph)["Slice"], 0);
  EXPECT_EQ(held(test::windowed_decoder(9, 8), 1).caches.size(), 1u) << "more than anyone sees";
  EXPECT_THAT(refusal(test::windowed_decoder(6, 8)), HasSubstr("the cache 'past' keeps 6 tokens, and "));
  EXPECT_THAT(refusal(test::windowed_decoder(7, 8, "p = Gather <axis = 0> (placed, own) embedded = Add (x, p)")),
              HasSubstr("computes with the number of tokens that caches keep"));
}

/// A decoder's text with another piece in it.
std::string with(std::string text, const std::string& piece, const std::string& other) {
  const size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return text.replace(at, piece.size(), other);
}

// Which of its own tokens a window would forget must not matter in any other way.
TEST(HoldCaches, refuses_windows_that_see_where_they_begin) {
  const std::string decoder = test::windowed_decoder(7, 8);
  const std::string seen = "seen = And (late, near)";
  EXPECT_THAT(refusal(with(decoder, seen,
                           "near_late = And (late, near) later = Greater (keys, zero) "
                           "seen = And (near_late, later)")),
              HasSubstr("may see others"));
  EXPECT_EQ(held(with(decoder, seen,
                      "near_late = And (late, near) other = Less (queries, keys) not = Not (other) "
                      "seen = And (near_late, not)"),
                 1)
                .caches.size(),
            1U);
  EXPECT_THAT(refusal(with(decoder, "Attention (heads, joined, joined, seen)", "Attention (heads, present, present)")),
              HasSubstr("reads 'present', which would have all tokens"));
}

// Each text's number of tokens is summed up of its mask, which is all ones; so there is no room to leave.
TEST(HoldCaches, appends_keys_that_groups_of_queries_share) {
  const HeldDecoder made = held(test::grouped_decoder());
  EXPECT_TRUE(made.ragged);
  EXPECT_EQ(rewrite::histogram(*made.model.graph)["TensorScatter"], 2);
  EXPECT_EQ(rewrite::histogram(*made.model.graph)["ScatterND"], 0);
  const Node* attention = only(*made.model.graph, "Attention");
  EXPECT_EQ(attention->input(3), nullptr);
  EXPECT_EQ(attention->get_int("is_causal", 0), 1);
  EXPECT_EQ(to_string(attention->inputs[1]->shape()), "[2, 2, 16, 16]");
  EXPECT_TRUE(only(*held(test::grouped_decoder("local_window_size = 4")).model.graph, "Attention")->input(3));
}

// Kernels take masks of Attention's own type and of float32.
TEST(TypeCaches, casts_masks_of_the_model_too) {
  for (const DType type : {DType::bfloat16, DType::float32, DType::float16}) {
    HeldDecoder made{.model = parse_text(R"(<ir_version: 10, opset_import: ["" : 24]>
      m (float16[1, 2, s, 4] q, float16[1, 2, s, 4] k, float16[1, 1, s, 8] mask, int64[1] held) => (float16[1, 2, s, 4] y)
        <float16[1, 2, 8, 4] cache> {
        next = TensorScatter <axis = 2> (cache, k, held)
        y = Attention (q, next, next, mask)
      })")};
    made.caches = {"cache"};
    Graph& graph = *made.model.graph;
    rewrite::fold(made.model);
    graph.find("cache")->data = Tensor::zeros(DType::float16, {1, 2, 8, 4});
    type_caches(made, type);
    const Node* attention = only(graph, "Attention");
    for (const size_t operand : {0, 1, 2}) EXPECT_EQ(attention->input(operand)->dtype(), type);
    EXPECT_EQ(attention->input(3)->dtype(), type == DType::float16 ? DType::float16 : DType::float32);
    EXPECT_EQ(graph.outputs[0]->dtype(), DType::float16);
  }
}

}  // namespace
}  // namespace tessera::generate

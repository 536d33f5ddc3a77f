#include <gmock/gmock.h>

#include <limits>

#include "ops/one_node.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

TEST(Attention, SplitsHeadsAndQueries) {
  OneNode node("Attention");
  node.operand("batch 6 s 16").operand("batch 6 t 16").operand("batch 6 t 16");
  EXPECT_EQ(node.type(), "float32 [batch, 6, s, 16]");
  EXPECT_EQ(node.rule(), "b kv s d, b kv t d, b kv t w -> b kv s w | d: whole, t: weighted");
  EXPECT_EQ(node.flops(), "384*batch*s*t");
}

TEST(Attention, QueryHeadsShareKeysInGroups) {
  OneNode node("Attention");
  node.operand("b 12 s 16").operand("b 4 t 16").operand("b 4 t 24");
  EXPECT_EQ(node.type(), "float32 [b, 12, s, 24]");
  EXPECT_EQ(node.rule(), "b (kv g) s d, b kv t d, b kv t w -> b (kv g) s w | d: whole, t: weighted");
  OneNode uneven("Attention");
  uneven.operand("b 12 s 16").operand("b 5 t 16").operand("b 5 t 16");
  EXPECT_THAT(uneven.error(), HasSubstr("12 query heads cannot share 5 key and value heads"));
}

TEST(Attention, SinksGoWithTheirHeadsAndKeysStayTogether) {
  const auto with_sinks = [](OneNode& node, std::string_view sinks) -> OneNode& {
    node.operand("b 12 s 16").operand("b 4 t 16").operand("b 4 t 24");
    for (size_t operand = 3; operand < 8; ++operand) node.absent();
    return node.operand(sinks);
  };
  OneNode node("Attention");
  EXPECT_THAT(with_sinks(node, "12").rule(),
              "b (kv g) s d, b kv t d, b kv t w, , , , , , (kv g) -> b (kv g) s w | d: whole, t: whole");
  EXPECT_THAT(node.localized("kv", 2), HasSubstr("AttentionShard(A, B, C, _, _, _, _, [0, s, 0, 0, 3], I)"));
  OneNode fewer("Attention");
  EXPECT_THAT(with_sinks(fewer, "4").error(), HasSubstr("the number of sinks"));
  OneNode scores("Attention");
  EXPECT_THAT(with_sinks(scores.results(4), "12").error(),
              HasSubstr("with sinks, its scores and the sums of its rows cannot be results"));
}

TEST(Attention, CausalNeedsThePlaceOfItsQueries) {
  OneNode causal("Attention");
  causal.operand("b 6 s 16").operand("b 6 s 16").operand("b 6 s 16").set("is_causal", int64_t{1});
  EXPECT_EQ(causal.rule(), "b kv s d, b kv t d, b kv t w -> b kv s w | s: position, d: whole, t: weighted");
  OneNode window("Attention");
  window.operand("b 6 s 16").operand("b 6 s 16").operand("b 6 s 16").set("left_window_size", int64_t{4});
  EXPECT_THAT(window.rule(), HasSubstr("s: position"));
}

TEST(Attention, InWindowsHasItsKeysWithItsQueries) {
  const auto rule = [](const char* keys, int64_t left, int64_t right) {
    OneNode node("Attention");
    node.operand("b 6 s 16").operand(keys).operand(keys).set("left_window_size", left).set("right_window_size", right);
    return node.rule();
  };
  EXPECT_EQ(rule("b 6 s 16", 4, 0), "b kv s d, b kv s d, b kv s w -> b kv s w | s: halo, d: whole");
  EXPECT_THAT(rule("b 6 s 16", 4, -1), HasSubstr("s: position")) << "a query sees all keys behind it";
  EXPECT_THAT(rule("b 6 t 16", 4, 0), HasSubstr("s: position")) << "keys do not stand where queries do";
  constexpr int64_t endless = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(rule("b 6 s 16", 4, endless), HasSubstr("s: position"));
  EXPECT_THAT(rule("b 6 s 16", endless, endless), HasSubstr("-> b kv s w | d: whole")) << "no query's place matters";
}

TEST(Attention, InWindowsCostsTheKeysThatItSees) {
  const auto flops = [](const char* extents, int64_t left) {
    OneNode node("Attention");
    node.operand(extents).operand(extents).operand(extents).set("left_window_size", left).set("is_causal", int64_t{1});
    return node.flops();
  };
  EXPECT_EQ(flops("1 1 100 8", -1), "320000");
  EXPECT_EQ(flops("1 1 100 8", 9), "32000");
  EXPECT_EQ(flops("1 1 100 8", 500), "320000");
}

TEST(Attention, BroadcastsItsMask) {
  OneNode full("Attention");
  full.operand("b 12 s 16").operand("b 4 t 16").operand("b 4 t 16").operand("b 12 s t");
  EXPECT_THAT(full.rule(), HasSubstr(", b (kv g) s t -> "));
  OneNode shared("Attention");
  shared.operand("b 12 s 16").operand("b 4 t 16").operand("b 4 t 16").operand("b 1 1 t", DType::boolean);
  EXPECT_THAT(shared.rule(), HasSubstr(", b 1 1 t -> "));
  OneNode plain("Attention");
  plain.operand("b 12 s 16").operand("b 4 t 16").operand("b 4 t 16").operand("s t");
  EXPECT_THAT(plain.rule(), HasSubstr(", s t -> "));
  OneNode shorter("Attention");
  shorter.operand("b 12 s 16").operand("b 4 9 16").operand("b 4 9 16").operand("1 7");
  EXPECT_THAT(shorter.rule(), HasSubstr("t: whole")) << "the mask's end would be on some rank";
  OneNode wrong("Attention");
  wrong.operand("b 12 s 16").operand("b 4 t 16").operand("b 4 t 16").operand("b 3 s t");
  EXPECT_THAT(wrong.error(), HasSubstr("the mask"));
  OneNode scalar("Attention");
  scalar.operand("b 12 s 16").operand("b 4 t 16").operand("b 4 t 16").operand("");
  EXPECT_THAT(scalar.error(), HasSubstr("its mask is a scalar; it needs a dimension of keys"));
}

TEST(Attention, AppendsToThePast) {
  OneNode node("Attention");
  node.operand("b 6 s 16").operand("b 6 s 16").operand("b 6 s 16").absent();
  node.operand("b 6 p 16").operand("b 6 p 16").results(3);
  EXPECT_EQ(node.type(1), "float32 [b, 6, p + s, 16]");
  EXPECT_EQ(node.rule(),
            "b kv s d, b kv t d, b kv t w, , b kv 1 d, b kv 1 w -> b kv s w, b kv 1 d, b kv 1 w"
            " | d: whole, t: whole");
  OneNode half("Attention");
  half.operand("b 6 s 16").operand("b 6 s 16").operand("b 6 s 16").absent().operand("b 6 p 16");
  EXPECT_THAT(half.error(), HasSubstr("together"));
}

TEST(Attention, PackedPassesTheBatchAndQueries) {
  OneNode node("Attention");
  node.operand("b s 192").operand("b t 64").operand("b t 64").operand("b 1 s t");
  node.set("q_num_heads", int64_t{12}).set("kv_num_heads", int64_t{4});
  EXPECT_EQ(node.type(), "float32 [b, s, 192]");
  EXPECT_EQ(node.rule(), "b s 1, b 1 1, b 1 1, b 1 s 1 -> b s 1");
  OneNode headless("Attention");
  headless.operand("b s 192").operand("b t 64").operand("b t 64");
  EXPECT_THAT(headless.error(), HasSubstr("q_num_heads"));
}

TEST(Attention, SaysWhichExtentsDiffer) {
  OneNode node("Attention");
  node.operand("b 6 s 16").operand("b 6 t 8").operand("b 6 t 16");
  EXPECT_THAT(node.error(), HasSubstr("the query's width per head (16) and the key's (8) must be equal"));
  OneNode ranks("Attention");
  ranks.operand("b 6 s 16").operand("b t 96").operand("b t 96");
  EXPECT_THAT(ranks.error(), HasSubstr("[b, 6, s, 16]"));
}

TEST(Attention, KeepsItsOperatorWhereNothingDependsOnPlaces) {
  OneNode node("Attention");
  node.operand("b 12 s 16").operand("b 4 t 16").operand("b 4 t 16");
  EXPECT_EQ(node.localized("kv", 2), "Attention(A, B, C) -> float32 [b, 6, s, 16]\n");
  EXPECT_EQ(node.localized("s", 2), "Attention(A, B, C) -> float32 [b, 12, floordiv(-@x + s + 1, 2), 16]\n");
}

TEST(Attention, OfSomeQueriesTakesTheirPlace) {
  OneNode node("Attention");
  node.operand("b 12 8 16").operand("b 4 8 16").operand("b 4 8 16").set("is_causal", int64_t{1});
  EXPECT_THAT(node.localized("s", 2), HasSubstr("AttentionShard(A, B, C, _, _, _, _, "));
}

TEST(AttentionShard, GivesRowsOfAPart) {
  OneNode node("AttentionShard", "tessera");
  node.operand("b 3 s 16", DType::bfloat16).operand("b 2 t 16", DType::bfloat16).operand("b 2 t 16", DType::bfloat16);
  node.absent().absent().absent().absent().ints({2, 5, 0, 1, 4}).results(5);
  EXPECT_EQ(node.type(), "float32 [b, 3, s, 16]");
  EXPECT_EQ(node.type(1), "bfloat16 [b, 2, t, 16]");
  EXPECT_EQ(node.type(3), "float32 [b, 3, s, 1]");
  node.results(1);
  EXPECT_EQ(node.type(), "bfloat16 [b, 3, s, 16]");
  OneNode placeless("AttentionShard", "tessera");
  placeless.operand("b 3 s 16").operand("b 2 t 16").operand("b 2 t 16").absent().absent().absent().absent();
  placeless.ints({2, 5});
  EXPECT_THAT(placeless.error(), HasSubstr("its place has 2 numbers; it must have 5"));
}

TEST(RotaryEmbedding, RotatesWithinAHead) {
  OneNode node("RotaryEmbedding");
  node.operand("b 6 s 32").operand("1 s 16").operand("1 s 16");
  EXPECT_EQ(node.type(), "float32 [b, 6, s, 32]");
  EXPECT_EQ(node.rule(), "b h s d, 1 s 1, 1 s 1 -> b h s d | d: whole");
  OneNode indexed("RotaryEmbedding");
  indexed.operand("b 6 s 32").operand("512 16").operand("512 16").operand("b s", DType::int64);
  EXPECT_EQ(indexed.rule(), "b h s d, 1 1, 1 1, b s -> b h s d | d: whole");
}

TEST(RotaryEmbedding, ChecksItsCaches) {
  OneNode width("RotaryEmbedding");
  width.operand("b 6 s 32").operand("b s 32").operand("b s 32");
  EXPECT_THAT(width.error(), HasSubstr("(32) and half of what is rotated (16)"));
  OneNode rank("RotaryEmbedding");
  rank.operand("b 6 s 32").operand("512 16").operand("512 16");
  EXPECT_THAT(rank.error(), HasSubstr("rank 3"));
}

TEST(RotaryEmbedding, OfARanksHeadsCountsItsOwn) {
  OneNode apart("RotaryEmbedding");
  apart.operand("b 6 s 32").operand("b s 16").operand("b s 16").set("num_heads", int64_t{6});
  EXPECT_EQ(apart.localized("h", 2), "RotaryEmbedding(A, B, C) -> float32 [b, 3, s, 32]\n");
  EXPECT_TRUE(apart.last_attributes.empty());

  OneNode packed("RotaryEmbedding");
  packed.operand("b s 192").operand("b s 16").operand("b s 16").set("num_heads", int64_t{6});
  EXPECT_EQ(packed.rule(), "b s (h d), b s 1, b s 1 -> b s (h d) | d: whole");
  EXPECT_EQ(packed.localized("h", 2), "RotaryEmbedding(A, B, C) -> float32 [b, s, 96]\n");
  EXPECT_EQ(std::get<int64_t>(packed.last_attributes.at(0).value), 3);
}

TEST(RotaryEmbedding, GoesThroughFourDimensionsWhereRanksDiffer) {
  OneNode node("RotaryEmbedding");
  node.operand("b s 192").operand("b s 16").operand("b s 16").set("num_heads", int64_t{6});
  std::string text = node.localized("h", 4);
  std::vector<std::string> types;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) types.push_back(line.substr(0, line.find('(')));
  EXPECT_THAT(types, testing::ElementsAre("Reshape", "Transpose", "RotaryEmbedding", "Transpose", "Reshape"));
}

}  // namespace
}  // namespace tessera::ops

#include "tessera/passes/ring_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "passes/rings.h"
#include "spmd/compiled.h"
#include "tessera/base/error.h"

namespace tessera::passes {
namespace {

using spmd::Compiled;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The attention of so many positions with themselves.
std::string self_attention(std::string_view positions, std::string_view attributes = "", int heads = 2) {
  const std::string type = fmt::format("float[1, {}, {}, 8]", heads, positions);
  return fmt::format("m ({0} q, {0} k, {0} v) => ({0} y) {{ y = Attention {1} (q, k, v) }}", type, attributes);
}

const Compiled::Orders kAlong = {
    {"q", "[-, -, x, -]"}, {"k", "[-, -, x, -]"}, {"v", "[-, -, x, -]"}, {"y", "[-, -, x, -]"}};

struct Ringed {
  spmd::Program program;
  std::vector<std::string> notes;
};

Ringed ringed(std::string_view text, std::string_view mesh, RingAttention when = RingAttention::always,
              std::string_view topology = "", const Compiled::Orders& orders = kAlong) {
  Ringed result{Compiled(text, mesh, orders).program(), {}};
  result.notes =
      put_in_rings(result.program, when, topology.empty() ? Topology() : Topology::from_json(topology, "test"));
  return result;
}

std::vector<std::string> steps_of(const spmd::Program& program) {
  std::vector<std::string> steps;
  for (const spmd::ReshardRecord& record : program.reshards)
    for (const std::string& step : record.steps) steps.push_back(record.value + ": " + step);
  return steps;
}

// To whom each rank's messages of keys go, in order; -1: to nobody.
std::vector<std::vector<int64_t>> receivers(const spmd::Program& program) {
  std::vector<std::vector<int64_t>> all;
  for (int64_t rank = 0; rank < program.mesh.size(); ++rank) {
    all.emplace_back();
    for (const auto& node : program.graph->nodes())
      if (node->is("Send", spmd::kCommDomain) && node->get_string("value", "") == "k")
        all.back().push_back(
            *bind_rank((*node->inputs[1]->content)[0], program.mesh, program.mesh.coordinates(rank)).constant());
  }
  return all;
}

TEST(RingAttention, passes_blocks_on_to_the_next_rank) {
  const Ringed result = ringed(self_attention("9"), "x=3");
  EXPECT_THAT(result.notes,
              ElementsAre("keys and values of an Attention go around a ring of x, instead of being gathered"));
  EXPECT_THAT(steps_of(result.program), ElementsAre("k: Ring x", "v: Ring x"));
  EXPECT_THAT(receivers(result.program), ElementsAre(ElementsAre(1, 1), ElementsAre(2, 2), ElementsAre(0, 0)));
  for (const auto& node : result.program.graph->nodes()) EXPECT_NE(node->op_type, "AllGather");
}

// Rank 0 sees its own keys only, and rank 2 all keys.
TEST(RingAttention, of_causal_queries_passes_blocks_downwards_only) {
  for (const char* positions : {"9", "10", "s"}) {
    const Ringed result = ringed(self_attention(positions, "<is_causal = 1>"), "x=3");
    EXPECT_THAT(receivers(result.program), ElementsAre(ElementsAre(1, -1), ElementsAre(2, 2), ElementsAre(-1, -1)))
        << positions;
  }
}

// The last rank, in either form.
TEST(RingAttention, counts_what_the_busiest_rank_receives) {
  for (const char* attributes : {"", "<is_causal = 1>"})
    EXPECT_EQ(ringed(self_attention("10", attributes), "x=3").program.reshards.front().bytes, Expr(2 * 7 * 8 * 4));
}

// Ranks with the same queries would begin with different blocks, and round differently.
TEST(RingAttention, needs_ranks_with_queries_of_their_own) {
  const std::string text = self_attention("24");
  const auto is_taken = [&](const char* mesh, const char* queries, const char* keys) {
    const Compiled::Orders orders = {{"q", queries}, {"k", keys}, {"v", keys}, {"y", queries}};
    return !ringed(text, mesh, RingAttention::always, "", orders).notes.front().starts_with("no keys");
  };
  EXPECT_FALSE(is_taken("a=2,b=3", "[-, -, a, -]", "[-, -, {a,b}, -]"));
  EXPECT_FALSE(is_taken("a=4", "[-, -, a:(1)2, -]", "[-, -, a, -]"));
  EXPECT_FALSE(is_taken("a=3", "[-, -, -, -]", "[-, -, a, -]"));
  EXPECT_TRUE(is_taken("a=2,b=3", "[-, -, {a,b}, -]", "[-, -, {a,b}, -]"));
  EXPECT_TRUE(is_taken("a=2,b=2", "[-, a, b, -]", "[-, a, b, -]"));
}

// Keys that stay split over one axis, and go around a ring of another.
TEST(RingAttention, leaves_no_gather_behind) {
  const Compiled::Orders orders = {
      {"q", "[-, -, a, -]"}, {"k", "[-, -, {b,a}, -]"}, {"v", "[-, -, {b,a}, -]"}, {"y", "[-, -, a, -]"}};
  const Ringed result = ringed(self_attention("24"), "a=2,b=3", RingAttention::always, "", orders);
  ASSERT_THAT(result.notes.front(), HasSubstr("a ring of a"));
  int shards = 0;
  for (const auto& node : result.program.graph->nodes()) {
    EXPECT_NE(node->op_type, "AllGather");
    shards += node->op_type == "AttentionShard";
  }
  EXPECT_EQ(shards, 2);
}

TEST(RingAttention, stays_within_the_groups_of_an_axis) {
  EXPECT_THAT(receivers(ringed(self_attention("9"), "a=2,x=2").program),
              ElementsAre(ElementsAre(1), ElementsAre(0), ElementsAre(3), ElementsAre(2)));
  EXPECT_THAT(receivers(ringed(self_attention("9"), "x=2,a=2").program),
              ElementsAre(ElementsAre(2), ElementsAre(3), ElementsAre(0), ElementsAre(1)));
}

// The present keys are whole in any case.
TEST(RingAttention, leaves_keys_that_others_read) {
  EXPECT_THAT(ringed("m (float[1, 2, 9, 8] q, float[1, 2, 9, 8] k, float[1, 2, 9, 8] v) =>\n"
                     "  (float[1, 2, 9, 8] y, float[1, 2, 9, 8] keys, float[1, 2, 9, 8] values) {\n"
                     "  y, keys, values = Attention (q, k, v)\n"
                     "}",
                     "x=3")
                  .notes,
              ElementsAre("no keys go around a ring; docs/attention.md says when they can"));
}

// Messages of few bytes cost more than one gather; those of many positions hide behind products. Between ranks that
// share a memory, nothing hides.
TEST(RingAttention, is_chosen_where_it_takes_less_time) {
  const auto over = [](int size, const char* latency) {
    return fmt::format(R"({{"axes": {{"x": [{{"size": {}, "alpha": {}, "bandwidth": 1e9}}]}}}})", size, latency);
  };
  const auto is_taken = [&](std::string_view text, const char* mesh, const std::string& topology,
                            RingAttention when = RingAttention::by_cost) {
    return !ringed(text, mesh, when, topology).notes.empty();
  };
  const std::string large = self_attention("16384", "", 16);
  EXPECT_TRUE(is_taken(large, "x=4", over(4, "1e-6")));
  EXPECT_FALSE(is_taken(large, "x=4", over(4, "1e-6"), RingAttention::never));
  EXPECT_FALSE(is_taken(large, "x=4", over(4, "1"))) << "three messages take longer than two steps of a tree";
  EXPECT_FALSE(is_taken(large, "x=4", "")) << "nothing is known of the links";
  EXPECT_FALSE(is_taken(large, "x=128", over(128, "1e-6"))) << "the program would be long";
  EXPECT_FALSE(is_taken(self_attention("64"), "x=4", over(4, "1e-3")));
}

TEST(RingAttention, says_which_words_it_knows) {
  EXPECT_EQ(parse_ring_attention(""), RingAttention::by_cost);
  EXPECT_EQ(parse_ring_attention("never"), RingAttention::never);
  try {
    parse_ring_attention("sometimes");
    FAIL() << "'sometimes' is refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'sometimes'"), HasSubstr("auto, always or never")));
  }
}

}  // namespace
}  // namespace tessera::passes

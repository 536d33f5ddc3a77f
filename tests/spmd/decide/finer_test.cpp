#include "tessera/spmd/decide/finer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/compiled.h"

namespace tessera::spmd {
namespace {

// 8 query heads in groups of 4.
constexpr std::string_view kGrouped =
    "m (float[1, 8, s, 4] q, float[1, 2, t, 4] k, float[1, 2, t, 4] v) => (float[1, 8, s, 4] y) {\n"
    "  y = Attention (q, k, v)\n"
    "}\n";

struct Laid {
  Compiled compiled;
  std::unique_ptr<Layout> finer;
  Decisions decisions;

  explicit Laid(std::string_view mesh, const Compiled::Orders& orders) : compiled(kGrouped, mesh, orders) {
    const auto nodes = nodes_for_finer_rules(*compiled.layout, compiled.decisions, compiled.hints);
    const Graph& graph = *compiled.model.graph;
    finer = std::make_unique<Layout>(graph, compiled.hints, std::multimap<const Value*, Sharding>(), Places(),
                                     Storage(), nodes);
    propagate(*finer, compiled.annotations, compiled.mesh);
    decisions = decide(graph, *finer, compiled.mesh, compiled.hints, compiled.annotations);
  }
  std::string result() const { return decisions.nodes[0].results[0].str(compiled.mesh); }
  std::string keys() const { return decisions.nodes[0].operands[1].str(compiled.mesh); }
  double work(bool by_finer) const {
    return busiest_work(*compiled.model.graph, by_finer ? *finer : *compiled.layout,
                        by_finer ? decisions : compiled.decisions, Costs(compiled.mesh, compiled.hints));
  }
};

TEST(FinerRules, split_query_heads_where_key_heads_do_not_divide) {
  const Laid three("tp=3", {{"y", "[-, tp, -, -]"}});
  EXPECT_EQ(three.compiled.produced("y"), "[-, 2{tp}·4, -, -]") << "one rank has no head";
  EXPECT_EQ(three.result(), "[-, 8{tp}, -, -]");
  EXPECT_EQ(three.keys(), "[-, -, -, -]");
  EXPECT_LT(three.work(true), three.work(false));
}

TEST(FinerRules, are_not_needed_where_groups_can_be_split_too) {
  for (const char* mesh : {"tp=2", "tp=4", "tp=8"}) {
    const Laid even(mesh, {{"y", "[-, tp, -, -]"}});
    EXPECT_TRUE(nodes_for_finer_rules(*even.compiled.layout, even.compiled.decisions, {}).empty()) << mesh;
  }
  const Laid four("tp=4", {{"y", "[-, tp, -, -]"}});
  EXPECT_EQ(four.compiled.produced("y"), "[-, 2{tp:(1)2}·4{tp:(2)2}, -, -]");
}

TEST(FinerRules, cost_what_they_gather) {
  const Laid split("tp=3", {{"k", "[-, tp, -, -]"}});  // long keys that lie split
  EXPECT_EQ(split.keys(), "[-, -, -, -]");
  EXPECT_GT(split.work(true), split.work(false));
}

}  // namespace
}  // namespace tessera::spmd

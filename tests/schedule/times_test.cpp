// Times of tables: starts, why ranks are idle, what they hold; their pictures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.h"
#include "tessera/pipeline.h"

namespace tessera {
namespace {

using testing::HasSubstr;

TEST(PipelineTimes, follow_order_and_messages) {
  const PipelineTable table = make_pipeline("1f1b", {2, 2});
  PipelineCosts costs = even_pipeline_costs(table, 2, 1, 1, 0.5);
  const PipelineTimes times = time_pipeline(table, costs);
  EXPECT_THAT(times.start[0], testing::ElementsAre(0, 2, 7, 11));         // F0 F1 B0 B1
  EXPECT_THAT(times.start[1], testing::ElementsAre(2.5, 4.5, 6.5, 8.5));  // F0 B0 F1 B1
  EXPECT_DOUBLE_EQ(times.step, 13);
  EXPECT_DOUBLE_EQ(times.bubble, 1 - 8 / 13.0);
  EXPECT_DOUBLE_EQ(times.ranks[1].first, 2.5);
  EXPECT_DOUBLE_EQ(times.ranks[1].last, 10.5);
}

TEST(PipelineTimes, say_why_ranks_are_idle) {
  // The second stage takes longer, and messages take time.
  const PipelineTable table = make_pipeline("1f1b", {2, 4});
  PipelineCosts costs = even_pipeline_costs(table, 1, 1, 1, 0.25);
  costs.forward[1] = 2;
  const PipelineTimes times = time_pipeline(table, costs);
  for (const PipelineRankTime& rank : times.ranks) EXPECT_NEAR(rank.busy + rank.idle.total(), times.step, 1e-9);
  // Rank 0: F0 F1, idle until B0 arrives, then it waits for the other in each turn, for the message at last.
  EXPECT_DOUBLE_EQ(times.ranks[0].idle.warm_up, 1 + 0.25 + 2 + 2 + 0.25 - 2);
  EXPECT_GT(times.ranks[0].idle.imbalance, 0);
  EXPECT_GT(times.ranks[0].idle.link, 0);
  EXPECT_GT(times.ranks[0].idle.tail, 0);
  EXPECT_DOUBLE_EQ(times.ranks[1].idle.warm_up, 1.25);
  EXPECT_DOUBLE_EQ(times.ranks[1].idle.imbalance + times.ranks[1].idle.link, 0);
  EXPECT_DOUBLE_EQ(times.ranks[1].idle.tail, 0.25 + 2);
}

TEST(PipelineTimes, count_what_ranks_hold) {
  const PipelineTable table = parse_pipeline("0F0,0F1,0I0,0I1,0W0,0W1\n", "table.csv");
  PipelineCosts costs = even_pipeline_costs(table, 1, 1, 1, 0);
  costs.activations = {100};
  EXPECT_DOUBLE_EQ(time_pipeline(table, costs).ranks[0].activations, 200);
  const PipelineTable late = parse_pipeline("0F0,0I0,0F1,0I1,0W0,0W1\n", "table.csv");
  costs.kept = 0.25;
  EXPECT_DOUBLE_EQ(time_pipeline(late, costs).ranks[0].activations, 125);
}

TEST(PipelineTimes, refuse_costs_that_do_not_fit) {
  const PipelineTable table = make_pipeline("1f1b", {2, 2});
  PipelineCosts costs = even_pipeline_costs(table, 1, 1, 1, 0);
  costs.forward.pop_back();
  EXPECT_THAT(test::error_of([&] { time_pipeline(table, costs); }), HasSubstr("for 1 stages, but the table has 2"));
  costs = even_pipeline_costs(table, 1, -1, 1, 0);
  EXPECT_THAT(test::error_of([&] { time_pipeline(table, costs); }), HasSubstr("at least 0"));
}

TEST(FindPipeline, keeps_the_limit) {
  PipelineRankCosts costs;
  costs.most_held = 2.5;
  const FoundPipeline found = find_pipeline({4, 16}, costs);
  for (const PipelineRankTime& rank : found.times.ranks) EXPECT_LE(rank.activations, 2.5);
  costs.most_held = 4;
  EXPECT_LT(find_pipeline({4, 16}, costs).times.bubble, found.times.bubble);
  costs.most_held = 0.1;
  EXPECT_THAT(test::error_of([&] { find_pipeline({4, 16}, costs); }), HasSubstr("holds at most 0.1"));
  costs.most_held = 4;
  EXPECT_EQ(find_pipeline({4, 16, 8}, costs).table.stages, 8);
}

TEST(FindPipeline, goes_by_the_sizes_that_it_is_given) {
  const auto error = [](const PipelineSizes& sizes) { return test::error_of([&] { find_pipeline(sizes, {}); }); };
  EXPECT_EQ(find_pipeline({4, 4, 20}, {}).name, "interleaved:5");
  EXPECT_THAT(error({4, 4, 21}), HasSubstr("no schedule puts 21 stages on 4 ranks"));
  EXPECT_THAT(error({0, 4}), HasSubstr("0 ranks"));
  EXPECT_THAT(error({4, 0}), HasSubstr("0 micro-batches"));
  // As fast as gpipe, and it holds less.
  EXPECT_NE(find_pipeline({1, 4, 1}, {}).name, "gpipe");
}

TEST(PipelinePictures, show_slots) {
  EXPECT_EQ(pipeline_text(make_pipeline("1f1b", {2, 2}), 120),
            "rank 0 F0 F1 .  .  B0    .  B1\n"
            "rank 1 .  F0 B0    F1 B1    .  .\n");
}

TEST(PipelinePictures, go_on_below) {
  EXPECT_EQ(pipeline_text(make_pipeline("1f1b", {2, 2}), 22),
            "rank 0 F0 F1 .  .  B0\n"
            "rank 1 .  F0 B0    F1\n\n"
            "rank 0 -  .  B1\n"
            "rank 1 B1    .  .\n");
}

TEST(PipelinePictures, draw_every_cell) {
  const PipelineTable table = make_pipeline("dualpipe-v", {2, 4});
  const std::string svg = pipeline_svg(table, time_pipeline(table, even_pipeline_costs(table, 1, 1, 1, 0)));
  for (const char* title : {"<title>0F0</title>", "<title>3B3</title>", "<title>0W3</title>"})
    EXPECT_THAT(svg, HasSubstr(title));
  EXPECT_THAT(svg, testing::StartsWith("<svg "));
}

}  // namespace
}  // namespace tessera

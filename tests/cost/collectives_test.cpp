#include "tessera/cost/collectives.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera::cost {
namespace {

using Kind = Collective;

// By hand, for 8 members and 800 bytes: a share is 100 bytes, and three rounds reach everybody.
TEST(CollectiveCost, rings_move_the_least_bytes) {
  EXPECT_EQ(ring(Kind::all_gather, 8, 800), (Terms{7, 700}));
  EXPECT_EQ(ring(Kind::reduce_scatter, 8, 800), (Terms{7, 700}));
  EXPECT_EQ(ring(Kind::all_to_all, 8, 800), (Terms{7, 700}));
  EXPECT_EQ(ring(Kind::all_reduce, 8, 800), (Terms{14, 1400}));
  EXPECT_EQ(ring(Kind::broadcast, 8, 800), (Terms{10, 1400}));
  EXPECT_EQ(ring(Kind::permute, 8, 800), (Terms{1, 800}));
}

TEST(CollectiveCost, trees_send_the_fewest_messages) {
  EXPECT_EQ(tree(Kind::all_reduce, 8, 800), (Terms{3, 2400}));
  EXPECT_EQ(tree(Kind::broadcast, 8, 800), (Terms{3, 2400}));
  EXPECT_EQ(tree(Kind::all_gather, 8, 800), (Terms{3, 700}));
  EXPECT_EQ(tree(Kind::all_to_all, 8, 800), (Terms{3, 1200}));
  EXPECT_EQ(tree(Kind::barrier, 8, 0), (Terms{3, 0}));
  EXPECT_EQ(tree(Kind::broadcast, 5, 800), (Terms{3, 2400})) << "five members take as many rounds as eight";
}

TEST(CollectiveCost, one_member_sends_nothing) {
  for (Kind kind : {Kind::all_reduce, Kind::broadcast, Kind::all_to_all, Kind::barrier}) {
    EXPECT_EQ(ring(kind, 1, 800), Terms{});
    EXPECT_EQ(tree(kind, 1, 800), Terms{});
  }
}

TEST(CollectiveCost, takes_the_better_form) {
  const Level level{8, 1, 0.01};
  EXPECT_DOUBLE_EQ(time_on(Kind::all_reduce, level, 8), 3 + 24 * 0.01) << "a tree for few bytes";
  EXPECT_DOUBLE_EQ(time_on(Kind::all_reduce, level, 8000), 14 + 14000 * 0.01) << "a ring for many";
}

// Two hosts of four ranks, 8000 bytes: by memory 0.1 s a message and 1 ms a byte, between hosts 1 s and 10 ms.
TEST(CollectiveCost, a_flat_group_waits_for_its_slowest_link) {
  const std::vector<Level> levels = {{4, 0.1, 1e-3}, {2, 1, 1e-2}};
  EXPECT_DOUBLE_EQ(flat_time(Kind::all_reduce, levels, 8000), 14 * 1 + 14000 * 1e-2);
}

TEST(CollectiveCost, levels_send_each_byte_once_over_the_slow_link) {
  const std::vector<Level> levels = {{4, 0.1, 1e-3}, {2, 1, 1e-2}};
  // Scatter and gather inside: 2 rounds each, 6000 bytes each; across: 1 round by doubling of all 8000 bytes.
  EXPECT_DOUBLE_EQ(hierarchical_time(Kind::all_reduce, levels, 8000), 2 * (2 * 0.1 + 6000 * 1e-3) + 1 + 8000 * 1e-2);
  EXPECT_DOUBLE_EQ(hierarchical_time(Kind::all_gather, levels, 8000), 2 * 0.1 + 6000 * 1e-3 + 1 + 4000 * 1e-2);
  EXPECT_DOUBLE_EQ(hierarchical_time(Kind::all_to_all, levels, 8000), flat_time(Kind::all_to_all, levels, 8000));
}

TEST(CollectiveCost, large_messages_between_two_hosts_gain_what_their_bytes_allow) {
  const std::vector<Level> levels = {{4, 0, 1e-12}, {2, 0, 1e-8}};
  EXPECT_NEAR(flat_time(Kind::all_reduce, levels, 1e6) / hierarchical_time(Kind::all_reduce, levels, 1e6), 1.75, 0.01);
}

TEST(CollectiveCost, bus_factors_are_those_of_nccl_tests) {
  EXPECT_DOUBLE_EQ(bus_factor(Kind::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Kind::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Kind::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Kind::all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Kind::broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Kind::reduce, 4), 1);
}

}  // namespace
}  // namespace tessera::cost

#include "tessera/spmd/partition/halo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spmd/compiled.h"
#include "tessera/spmd/partition/partition.h"

namespace tessera::spmd {
namespace {

using ops::Interval;
using ops::Window;
using testing::ElementsAre;
using Ends = std::pair<int64_t, int64_t>;

Ends numbers(const Interval& interval, const Symbols& sizes = {}) {
  return {interval.begin.evaluate(sizes), interval.end.evaluate(sizes)};
}

std::vector<Ends> numbers(const std::vector<Interval>& intervals) {
  std::vector<Ends> all;
  for (const Interval& interval : intervals) all.push_back(numbers(interval));
  return all;
}

const std::vector<AxisRef> kThree = {{"x", 1, 3}};
const Window kAround{1, 1, -1, 1};  // 3 elements around each

TEST(Halo, IsWhatTheNeighboursHave) {
  const Halo halo(kAround, 10, 10, kThree);
  EXPECT_THAT(numbers(halo.held), ElementsAre(Ends{0, 4}, Ends{4, 7}, Ends{7, 10}));
  EXPECT_THAT(numbers(halo.read), ElementsAre(Ends{-1, 5}, Ends{3, 8}, Ends{6, 11}));
  EXPECT_EQ(numbers(halo.taken(1, 0)), (Ends{3, 4}));
  EXPECT_EQ(numbers(halo.taken(1, 2)), (Ends{7, 8}));
  EXPECT_EQ(halo.taken(0, 2).count(), Expr(0));
  EXPECT_EQ(halo.received(1), Expr(2));
  EXPECT_EQ(halo.before(0), Expr(1));
  EXPECT_EQ(halo.after(0), Expr(0));
  EXPECT_EQ(halo.after(2), Expr(1));
}

// Two results, two elements and three ranks: the last has nothing, and reads nothing.
TEST(Halo, OfARankWithoutResultsIsEmpty) {
  const Halo halo(kAround, 2, 2, kThree);
  EXPECT_EQ(halo.read[2].count(), Expr(0));
  EXPECT_EQ(halo.received(2), Expr(0));
  EXPECT_EQ(halo.before(2), Expr(0));
  EXPECT_EQ(halo.after(2), Expr(0));
  EXPECT_EQ(numbers(halo.taken(0, 1)), (Ends{1, 2}));
}

TEST(Halo, KeepsWhatDoesNoHarmBehindTheLastWindow) {
  const Window every_second{2, 1, 0, 0, 1};
  const Halo halo(every_second, 8, 4, {{"x", 1, 2}});
  EXPECT_THAT(numbers(halo.read), ElementsAre(Ends{0, 3}, Ends{4, 7}));
  EXPECT_THAT(numbers(halo.kept), ElementsAre(Ends{0, 4}, Ends{4, 8})) << "whole parts need no copy";
}

TEST(Halo, ReadsTheNearestElementForThoseBeyond) {
  Window edge{1, 1, -4, -4};  // 4 elements in front of 3, and 5 behind
  edge.beyond = Window::Beyond::nearest;
  const Halo halo(edge, 3, 12, kThree);
  EXPECT_THAT(numbers(halo.read), ElementsAre(Ends{0, 1}, Ends{0, 3}, Ends{2, 3}));
  EXPECT_EQ(halo.before(0), Expr(0));
  EXPECT_EQ(halo.after(2), Expr(0));
}

TEST(Halo, ReadsMirroredElementsForThoseBeyond) {
  Window reflect{1, 1, -5, -5};  // 5 elements in front of 6, and 5 behind
  reflect.beyond = Window::Beyond::mirrored;
  const Halo halo(reflect, 6, 16, {{"x", 1, 4}});
  EXPECT_THAT(numbers(halo.read), ElementsAre(Ends{0, 6}, Ends{0, 3}, Ends{3, 6}, Ends{0, 6}));
}

// Between the holder of the last element and a rank that reads it there may be ranks without elements.
TEST(Halo, KnowsHowFarMessagesGo) {
  EXPECT_THAT(Halo(kAround, 10, 10, kThree).distances(), ElementsAre(-1, 1));
  EXPECT_THAT(Halo({1, 1, -3, 3}, 6, 6, kThree).distances(), ElementsAre(-2, -1, 1, 2));
  EXPECT_THAT(Halo({1, 1, -1, -1}, 2, 4, {{"x", 1, 4}}).distances(), ElementsAre(-1));
  EXPECT_THAT(Halo({1, 1, -2, -2}, 2, 4, {{"x", 1, 4}}).distances(), ElementsAre(-2));
  EXPECT_THAT(Halo({2, 1, 0, 1}, 8, 4, {{"x", 1, 4}}).distances(), testing::IsEmpty());
  EXPECT_THAT(Halo(kAround, Expr::symbol("s"), Expr::symbol("s"), kThree).distances(), ElementsAre(-2, -1, 1, 2));
}

TEST(Halo, NestsAxesAsShardsDo) {
  const std::vector<Interval> shards = shards_of(7, {{"a", 1, 2}, {"b", 1, 2}});
  EXPECT_THAT(numbers(shards), ElementsAre(Ends{0, 2}, Ends{2, 4}, Ends{4, 6}, Ends{6, 7}));
}

TEST(Halo, HoldsForEverySizeOfASymbol) {
  const Halo halo(kAround, Expr::symbol("s"), Expr::symbol("s"), kThree);
  for (int64_t size = 0; size < 9; ++size) {
    const Symbols sizes = {{"s", size}};
    const Halo known(kAround, size, size, kThree);
    for (int64_t reader = 0; reader < 3; ++reader)
      for (int64_t holder = 0; holder < 3; ++holder) {
        const Interval symbolic = halo.taken(reader, holder), number = known.taken(reader, holder);
        EXPECT_EQ(symbolic.count().evaluate(sizes), number.count().evaluate(sizes));
      }
  }
}

// The same by the member's number as an expression.
TEST(Halo, ShardsHaveAClosedForm) {
  for (const std::vector<AxisRef>& axes : std::vector<std::vector<AxisRef>>{
           {{"a", 1, 3}}, {{"a", 1, 2}, {"b", 1, 2}}, {{"b", 1, 2}, {"c", 1, 3}, {"a", 1, 2}}})
    for (const Expr& size : {Expr(7), Expr::symbol("s")}) {
      const std::vector<Interval> shards = shards_of(size, axes);
      const Interval any = shard_of(size, axes, Expr::axis_index("m"));
      const Mesh numbers({{"m", std::ssize(shards)}});
      for (int64_t m = 0; m < std::ssize(shards); ++m)
        for (int64_t s = 0; s < 9; ++s) {
          const Symbols sizes = {{"s", s}};
          EXPECT_EQ(bind_rank(any.begin, numbers, {m}).evaluate(sizes), shards[m].begin.evaluate(sizes));
          EXPECT_EQ(bind_rank(any.end, numbers, {m}).evaluate(sizes), shards[m].end.evaluate(sizes));
        }
    }
}

// A rank that needs no elements of a result must not be sent any.
TEST(Halo, IsNotExchangedForAShape) {
  Compiled compiled(
      "m (float[3, 8] a, float[5, 8] b) => (int64[2] y) {\n"
      "  c = Concat <axis = 0> (b, a)\n"
      "  r = Neg (c)\n"
      "  y = Shape (r)\n"
      "}\n",
      "x=2", {{"c", "[x, -]"}});
  const Program program =
      partition(*compiled.model.graph, *compiled.layout, compiled.decisions, compiled.mesh, compiled.hints);
  for (const auto& node : program.graph->nodes()) EXPECT_NE(node->domain, kCommDomain) << node->label();
}

}  // namespace
}  // namespace tessera::spmd

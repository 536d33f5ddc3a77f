#include <gmock/gmock.h>

#include <algorithm>

#include "ops/one_node.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/slice.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

constexpr int64_t kEnd = INT64_MAX;

struct SliceCase {
  Expr start, end;
  int64_t step;
  Expr extent;
  std::string from, count;
};

TEST(Slice, RangesAreClampedSymbolically) {
  for (const SliceCase& c : std::vector<SliceCase>{
           {2, 5, 1, 8, "2", "3"},
           {0, kEnd, 1, s, "0", "s"},
           {1, kEnd, 1, s, "1", "s - 1"},
           {-2, kEnd, 1, 64, "62", "2"},
           {-1, kEnd, 1, s, "s - 1", "1"},
           {0, 1, 1, s, "0", "1"},
           {0, s, 1, 512, "0", "min(512, s)"},
           {0, s, 1, s + 1, "0", "s"},
           {1, s + 1, 1, s + 1, "1", "s"},
           {past, past + s, 1, past + s, "past", "s"},
           {past, past + 1, 1, 512, "past", "max(0, min(1, 512 - past))"},
           {0, -1, 1, s, "0", "s - 1"},
           {0, 7, 2, 7, "0", "4"},
           {5, 2, 1, 8, "5", "0"},
           {-1, INT64_MIN, -1, 6, "5", "6"},
           {-1, INT64_MIN, -1, s, "s - 1", "s"},
           {3, 0, -2, 8, "3", "2"},
           {5, INT64_MAX, -1, 6, "5", "0"},
           {INT64_MIN, INT64_MIN, -1, 6, "0", "1"},
           {INT64_MAX, INT64_MIN, -1, s, "s - 1", "s"},
           {INT64_MIN, INT64_MAX, 1, s, "0", "s"},
       }) {
    SliceRange range = slice_range(c.start, c.end, c.step, c.extent);
    std::string what = fmt::format("{}:{}:{} of {}", c.start.str(), c.end.str(), c.step, c.extent.str());
    EXPECT_EQ(range.start, Expr::parse(c.from)) << what << " starts at " << range.start.str();
    EXPECT_EQ(range.count, Expr::parse(c.count)) << what << " has " << range.count.str();
  }
}

// Python's own slices are the meaning, but for a backward start before the dimension; here they are counted element by
// element.
TEST(Slice, CountsWhatPythonCounts) {
  for (int64_t extent = 1; extent <= 6; ++extent)
    for (int64_t start = -8; start <= 8; ++start)
      for (int64_t end = -8; end <= 8; ++end)
        for (int64_t step : {-3, -2, -1, 1, 2, 3}) {
          int64_t low = step > 0 ? 0 : -1, high = step > 0 ? extent : extent - 1;
          auto place = [&](int64_t at) { return std::clamp(at < 0 ? at + extent : at, low, high); };
          int64_t count = 0;
          const int64_t first = std::max<int64_t>(place(start), 0);  // ONNX clamps it to the dimension
          for (int64_t i = first; step > 0 ? i < place(end) : i > place(end); i += step) ++count;
          SliceRange range = slice_range(start, end, step, extent);
          ASSERT_TRUE(range.count.is(count)) << start << ":" << end << ":" << step << " of " << extent << " gives "
                                             << range.count.str() << ", not " << count;
          ASSERT_TRUE(!count || range.start.is(first)) << start << ":" << end << ":" << step;
        }
}

TEST(Slice, PassesTheDimensionsItTakesWhole) {
  OneNode node("Slice");
  node.operand("b 6 s 32").ints({0, 0}).ints({kEnd, 16}).ints({2, -1}).ints({1, 1});
  EXPECT_EQ(node.type(), "float32 [b, 6, s, 16]");
  EXPECT_EQ(node.rule(), "a b c d, 1, 1, 1, 1 -> a b c d | d: halo");

  OneNode positions("Slice");
  positions.operand("1 512", DType::int64).ints({0}).expressions({s}).ints({1});
  EXPECT_EQ(positions.type(), "int64 [1, min(512, s)]");
}

TEST(Slice, PicksFromKnownContent) {
  OneNode node("Slice");
  node.expressions({b, s, 64, 8}).ints({-1}).ints({0}).ints({0}).ints({-2});
  EXPECT_EQ(node.content(), "[8, s]");
}

TEST(Slice, RefusesWhatDependsOnData) {
  OneNode node("Slice");
  node.operand("b 8").operand("1", DType::int64).ints({4});
  EXPECT_THAT(node.error(), HasSubstr("its range ('B') depends on data"));

  OneNode still("Slice");
  still.operand("8").ints({0}).ints({4}).ints({0}).ints({0});
  EXPECT_THAT(still.error(), HasSubstr("the step of dimension 0 is 0"));
}

TEST(Pad, AddsToExtentsAndPassesTheOthers) {
  OneNode node("Pad");
  node.operand("b 3 h w").ints({0, 0, 1, 2, 0, 0, 1, 2});
  EXPECT_EQ(node.type(), "float32 [b, 3, h + 2, w + 4]");
  EXPECT_EQ(node.rule(), "a b c d, 1 -> a b c d | c: halo, d: halo");
  const auto rule = [](const char* mode, std::vector<int64_t> pads) {
    OneNode padded("Pad");
    padded.operand("n 5").ints(std::move(pads)).set("mode", std::string(mode));
    return padded.rule();
  };
  EXPECT_EQ(rule("edge", {1, 9, 0, 2}), "a b, 1 -> a b | a: halo, b: halo");
  EXPECT_EQ(rule("edge", {-1, 0, 0, 0}), "1 b, 1 -> 1 b") << "what is cut decides which element is at the edge";
  EXPECT_EQ(rule("reflect", {0, 4, 0, 4}), "a b, 1 -> a b | b: halo");
  EXPECT_EQ(rule("reflect", {1, 5, 0, 0}), "1 1, 1 -> 1 1") << "there may be no element as far from the end";
  EXPECT_EQ(node.partials(), "sum{0}");

  OneNode filled("Pad");
  filled.operand("b 3").ints({1, 0}).operand("").ints({-1});
  EXPECT_EQ(filled.type(), "float32 [b, 4]");
  EXPECT_EQ(filled.rule(), "a b, 1, , 1 -> a b | b: halo");
  EXPECT_EQ(filled.partials(), "") << "the value would be added once per rank";

  OneNode wrong("Pad");
  wrong.operand("b 3").ints({1, 0});
  EXPECT_THAT(wrong.error(), HasSubstr("pads has 2 entries for 2 dimensions"));
}

TEST(Tile, RepeatsAreMajorToTheirDimension) {
  OneNode node("Tile");
  node.operand("b 8").ints({1, 3});
  EXPECT_EQ(node.type(), "float32 [b, 24]");
  EXPECT_EQ(node.rule(), "a b, 1 -> a (b_repeats b)");
  EXPECT_EQ(node.localized("b", 2), "Tile(A, [1, 3]) -> float32 [b, 12]\n");
  EXPECT_EQ(node.localized("b_repeats", 3), "Tile(A, [1, 1]) -> float32 [b, 8]\n");
}

TEST(Extents, negative_ones_are_refused_where_they_are_asked_for) {
  EXPECT_THAT(OneNode("Tile").operand("2 3").ints({1, -1}).error(), HasSubstr("dimension 1 of its result would be -3"));
  EXPECT_THAT(OneNode("Split").operand("3").ints({-1, 4}).set("axis", int64_t{0}).results(2).error(),
              HasSubstr("dimension 0 of its result would be -1"));
  EXPECT_THAT(OneNode("OneHot").operand("2", DType::int64).ints({-4}, true).operand("2").error(),
              HasSubstr("dimension 1 of its result would be -4"));
}

// A dimension of a model has at least one element; the first rank's index is 0.
TEST(Least, supposes_symbols_to_be_positive_but_not_indices) {
  EXPECT_EQ(ops::least(Expr::symbol("batch")), 1);
  EXPECT_EQ(ops::least(Expr::axis_index("tp")), 0);
  EXPECT_EQ(ops::least(Expr::symbol("batch") * 4 + Expr::axis_index("tp")), 4);
}

// A rank whose part is smaller than a window, or than what a Pad cuts off, has no elements.
TEST(ExtentOfPart, falls_to_nothing_and_no_further) {
  const Expr rank = Expr::symbol("@x"), size = Expr::symbol("n");
  const auto on_rank = [](const Expr& extent, int64_t index) {
    return extent.evaluate([index](std::string_view) { return std::optional(index); });
  };
  for (const int64_t index : {0, 1, 5})
    EXPECT_EQ(on_rank(extent_of_part(3 - rank), index), std::max<int64_t>(0, 3 - index));
  EXPECT_EQ(extent_of_part(rank + 1), rank + 1) << "which is never negative";
  EXPECT_EQ(extent_of_part(size - 3), size - 3) << "a model's extents are what formulas say";
  const Shape part = {1, 2, min(3, rank)};
  const auto extent_on_rank_1 = [&](Node* node) {
    infer_results(op_of(*node), *node);
    return on_rank(node->output()->shape().back(), 1);
  };
  Graph graph;
  Value* x = graph.add_input("x", {DType::float32, part});
  Node* pool = graph.add_node("MaxPool", {x}, {"pooled"});
  pool->set("kernel_shape", std::vector<int64_t>{3});
  EXPECT_EQ(extent_on_rank_1(pool), 0);
  Node* crop = graph.add_node("Pad", {x, graph.constant_int64({0, 0, -1, 0, 0, -1})}, {"cropped"});
  EXPECT_EQ(extent_on_rank_1(crop), 0);
}

}  // namespace
}  // namespace tessera::ops

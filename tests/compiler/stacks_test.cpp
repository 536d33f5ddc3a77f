#include "tessera/compiler/stacks.h"

#include <gtest/gtest.h>

#include "tessera/mesh/box.h"

namespace tessera::compiler {
namespace {

const Mesh& mesh() {
  static const Mesh all = Mesh::parse("x=2,y=3,z=4");
  return all;
}

// A row is where its shard of the stack is, also if rows are fewer than ranks, or do not divide.
TEST(RowsOfStacks, LieWhereTheirShardsAre) {
  const AxisRef x{"x", 1, 2}, y{"y", 1, 3}, z{"z", 1, 4}, minor{"z", 2, 2};
  for (const std::vector<AxisRef>& axes :
       {std::vector<AxisRef>{}, {x}, {y}, {x, y}, {y, x}, {z, y}, {minor, x}, {y, minor, x}})
    for (const int64_t rows : {1, 2, 3, 4, 6, 7, 13}) {
      const Sharding sharding{{DimSharding{{Part{rows, axes}}}}};
      for (int64_t rank = 0; rank < mesh().size(); ++rank) {
        const std::vector<int64_t> at = mesh().coordinates(rank);
        const Box box = box_of(sharding, mesh(), at, {});
        for (int64_t row = 0; row < rows; ++row) {
          const bool holds = row >= box.offsets[0] && row < box.offsets[0] + box.extents[0];
          const Sharding placed{{}, {}, place_of_row(axes, row, rows)};
          EXPECT_EQ(placed.lives_on(mesh(), at), holds) << row << " of " << rows << " on " << rank;
        }
      }
    }
}

std::vector<std::vector<PlacedAxis>> places_of(const RowsLayout& layout, int64_t rows) {
  std::vector<std::vector<PlacedAxis>> places;
  for (int64_t row = 0; row < rows; ++row) {
    places.push_back(place_of_row(layout.axes, row, rows));
    places.back().insert(places.back().begin(), layout.at.begin(), layout.at.end());
  }
  return places;
}

TEST(RowsOfStacks, AreSplitOverTheAxesThatPutThemThere) {
  const AxisRef x{"x", 1, 2}, y{"y", 1, 3}, z{"z", 1, 4};
  for (const RowsLayout& layout : std::vector<RowsLayout>{{{}, {}},
                                                          {{x}, {}},
                                                          {{y, x}, {}},
                                                          {{x, y}, {}},
                                                          {{y}, {{x, 1}}},
                                                          {{z, x}, {{y, 2}}},
                                                          {{}, {{x, 0}, {y, 1}}}})
    for (const int64_t rows : {4, 6, 12, 13, 24}) {
      const auto places = places_of(layout, rows);
      const auto found = layout_of_rows(places);
      ASSERT_TRUE(found) << rows;
      const auto again = places_of(*found, rows);
      for (size_t row = 0; row < places.size(); ++row) EXPECT_TRUE(same_place(again[row], places[row])) << row;
      if (layout.at.empty()) {
        EXPECT_TRUE(found->at.empty()) << "of ranks without rows, nothing is said";
      }
    }
}

TEST(RowsOfStacks, MayShareAPartOfAnAxis) {
  const AxisRef z{"z", 1, 4};
  const auto on = [&](std::vector<int64_t> indices) {
    std::vector<std::vector<PlacedAxis>> places;
    for (const int64_t index : indices) places.push_back({{z, index}});
    return layout_of_rows(places);
  };
  const auto upper = on({2, 2, 3, 3});
  ASSERT_TRUE(upper);
  EXPECT_EQ(upper->axes, (std::vector<AxisRef>{{"z", 2, 2}}));
  EXPECT_EQ(upper->at, (std::vector<PlacedAxis>{{{"z", 1, 2}, 1}}));
  const auto lower = on({0, 1});
  ASSERT_TRUE(lower);
  EXPECT_EQ(lower->axes, (std::vector<AxisRef>{z}));
  EXPECT_FALSE(on({1, 1, 2, 2})) << "no part of the axis";
  EXPECT_FALSE(on({0, 1, 0, 1})) << "in turn";
  EXPECT_FALSE(on({1, 0, 3, 2}));
  EXPECT_FALSE(layout_of_rows({{{z, 0}}, {}})) << "the second is everywhere";
}

}  // namespace
}  // namespace tessera::compiler

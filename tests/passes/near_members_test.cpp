#include "tessera/passes/near_members.h"

#include <gtest/gtest.h>

namespace tessera::passes {
namespace {

const std::vector<AxisRef> kTwoAxes = {{"a", 1, 2}, {"b", 1, 4}};

TEST(GroupUnits, end_between_axes_or_within_one) {
  const auto halves = units_of(kTwoAxes, 2, 12);
  ASSERT_TRUE(halves);
  EXPECT_EQ(halves->far, (std::vector<AxisRef>{{"a", 1, 2}}));
  EXPECT_EQ(halves->near, (std::vector<AxisRef>{{"b", 1, 4}}));
  const auto quarters = units_of(kTwoAxes, 4, 16);
  ASSERT_TRUE(quarters);
  EXPECT_EQ(quarters->far, (std::vector<AxisRef>{{"a", 1, 2}, {"b", 1, 2}}));
  EXPECT_EQ(quarters->near, (std::vector<AxisRef>{{"b", 2, 2}}));
}

// 12 rows over 4 members and then 2 are split otherwise than over 8.
TEST(GroupUnits, end_within_an_axis_only_if_it_divides_the_dimension_evenly) {
  EXPECT_FALSE(units_of(kTwoAxes, 4, 12));
  EXPECT_FALSE(units_of(kTwoAxes, 3, 24));
}

TEST(GroupUnits, are_members_without_a_number) {
  const auto all = units_of(kTwoAxes, 0, 12);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->far, kTwoAxes);
  EXPECT_TRUE(all->near.empty());
}

}  // namespace
}  // namespace tessera::passes

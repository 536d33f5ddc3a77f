#include "tessera/comm/yield.h"

#include <gtest/gtest.h>

namespace tessera::comm {
namespace {

using namespace std::chrono_literals;

constexpr Yielding::Clock::time_point kNow{1h};

TEST(Yielding, PaysWhileTheCoreComesBackSoon) {
  Yielding yielding;
  ASSERT_TRUE(yielding.pays(kNow));
  yielding.note(kNow, kNow + 20us);
  EXPECT_TRUE(yielding.pays(kNow + 20us));
}

TEST(Yielding, DoesNotPayForAWhileAfterOthersKeptTheCore) {
  Yielding yielding;
  yielding.note(kNow, kNow + 3ms);
  EXPECT_FALSE(yielding.pays(kNow + 3ms));
  EXPECT_FALSE(yielding.pays(kNow + 100ms));
  EXPECT_TRUE(yielding.pays(kNow + 300ms));
}

TEST(Yielding, ReturnsToTheCaller) {
  for (int i = 0; i < 100; ++i) yield_for_a_moment();
}

}  // namespace
}  // namespace tessera::comm

#include "tessera/base/time_text.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(TimeText, has_three_digits) {
  EXPECT_EQ(time_text(0), "0 µs");
  EXPECT_EQ(time_text(12.512e-6), "12.5 µs");
  EXPECT_EQ(time_text(1e-4), "0.1 ms");
  EXPECT_EQ(time_text(1.25e-3), "1.25 ms");
}

}  // namespace
}  // namespace tessera

#include "tessera/base/rounded_time.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(RoundedTime, has_three_digits) {
  EXPECT_EQ(rounded_time(0), "0 µs");
  EXPECT_EQ(rounded_time(12.512e-6), "12.5 µs");
  EXPECT_EQ(rounded_time(1e-4), "0.1 ms");
  EXPECT_EQ(rounded_time(1.25e-3), "1.25 ms");
}

}  // namespace
}  // namespace tessera

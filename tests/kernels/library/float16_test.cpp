#include "tessera/base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera::kernels {
namespace {

template <typename Narrow>
Narrow from_bits(uint16_t bits) {
  Narrow value;
  value.bits = bits;
  return value;
}

/// Every finite value comes back, and what lies between two neighbours goes to the nearer, ties to the even one.
template <typename Narrow>
void check_rounding(uint16_t infinity) {
  for (uint16_t bits = 0; bits < infinity; ++bits) {
    const float here = static_cast<float>(from_bits<Narrow>(bits));
    ASSERT_EQ(Narrow(here).bits, bits);
    ASSERT_EQ(Narrow(-here).bits, bits | 0x8000);
    if (bits + 1 == infinity) break;
    const float next = static_cast<float>(from_bits<Narrow>(static_cast<uint16_t>(bits + 1)));
    const float middle = here + (next - here) / 2;
    ASSERT_EQ(Narrow(middle).bits, bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(Narrow(std::nextafter(middle, 0.0f)).bits, bits) << bits;
    ASSERT_EQ(Narrow(std::nextafter(middle, next)).bits, bits + 1) << bits;
  }
}

TEST(Float16, rounds_to_nearest_even) {
  check_rounding<Float16>(0x7c00);
}

TEST(Float16, knows_its_special_values) {
  EXPECT_EQ(static_cast<float>(from_bits<Float16>(0x3c00)), 1.0f);
  EXPECT_EQ(static_cast<float>(from_bits<Float16>(0x0001)), 0x1p-24f);
  EXPECT_EQ(Float16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Float16(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
  EXPECT_TRUE(std::isinf(static_cast<float>(from_bits<Float16>(0x7c00))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Float16(std::nanf("")))));
}

TEST(BFloat16, rounds_to_nearest_even) {
  check_rounding<BFloat16>(0x7f80);
}

TEST(BFloat16, knows_its_special_values) {
  EXPECT_EQ(static_cast<float>(from_bits<BFloat16>(0x3f80)), 1.0f);
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::nanf("")))));
}

}  // namespace
}  // namespace tessera::kernels

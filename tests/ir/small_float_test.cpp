#include "tessera/ir/small_float.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tessera/ir/tensor.h"

namespace tessera {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const SmallFloat* const kAll[] = {&float8e4m3fn(),   &float8e4m3fnuz(), &float8e5m2(),
                                  &float8e5m2fnuz(), &float4e2m1(),     &float8e8m0()};

// The largest numbers and the smallest steps that the specifications state.
TEST(SmallFloat, has_the_numbers_of_its_specification) {
  EXPECT_EQ(float8e4m3fn().decode(0x7e), 448);
  EXPECT_TRUE(std::isnan(float8e4m3fn().decode(0x7f)) && std::isnan(float8e4m3fn().decode(0xff)));
  EXPECT_EQ(float8e4m3fn().decode(0x01), std::ldexp(1.0F, -9));
  EXPECT_EQ(float8e4m3fnuz().decode(0x7f), 240);
  EXPECT_TRUE(std::isnan(float8e4m3fnuz().decode(0x80)));
  EXPECT_EQ(float8e5m2().decode(0x7b), 57344);
  EXPECT_EQ(float8e5m2().decode(0xfc), -kInfinity);
  EXPECT_TRUE(std::isnan(float8e5m2().decode(0x7d)));
  EXPECT_EQ(float8e5m2().decode(0x01), std::ldexp(1.0F, -16));
  EXPECT_EQ(float8e5m2fnuz().decode(0x7f), 57344);
  EXPECT_EQ(float4e2m1().decode(0x7), 6);
  EXPECT_EQ(float4e2m1().decode(0xf), -6);
  EXPECT_EQ(float8e8m0().decode(0), std::ldexp(1.0F, -127));
  EXPECT_EQ(float8e8m0().decode(127), 1);
  EXPECT_TRUE(std::isnan(float8e8m0().decode(255)));
}

TEST(SmallFloat, gives_each_of_its_numbers_back) {
  for (const SmallFloat* format : kAll)
    for (int code = 0; code < (format == &float4e2m1() ? 16 : 256); ++code) {
      const float value = format->decode(static_cast<uint8_t>(code));
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(format->decode(format->encode(value)))) << code;
      } else {
        EXPECT_EQ(format->encode(value, false), code) << value;
      }
    }
}

TEST(SmallFloat, rounds_to_the_nearest_and_ties_to_even_codes) {
  for (const SmallFloat* format : kAll)
    for (int code = 1; code < 0x7; ++code) {
      const double low = format->decode(static_cast<uint8_t>(code)),
                   high = format->decode(static_cast<uint8_t>(code + 1));
      const double middle = (low + high) / 2;
      EXPECT_EQ(format->encode(middle), code % 2 == 0 ? code : code + 1) << low;
      EXPECT_EQ(format->encode(std::nextafter(middle, 0)), code) << low;
      EXPECT_EQ(format->encode(std::nextafter(middle, kInfinity)), code + 1) << low;
    }
}

TEST(SmallFloat, saturates_or_leaves_the_numbers) {
  EXPECT_EQ(float8e4m3fn().encode(464), 0x7e);  // a tie with what would come next
  EXPECT_EQ(float8e4m3fn().encode(464, false), 0x7e);
  EXPECT_EQ(float8e4m3fn().encode(465, false), 0x7f);
  EXPECT_EQ(float8e4m3fn().encode(-kInfinity), 0xfe);
  EXPECT_EQ(float8e4m3fn().encode(-kInfinity, false), 0xff);
  EXPECT_EQ(float8e5m2().encode(61440, false), 0x7c);  // a tie: the largest number's code is odd
  EXPECT_EQ(float8e5m2().encode(kInfinity), 0x7b);
  EXPECT_EQ(float8e5m2().encode(-kInfinity, false), 0xfc);
  EXPECT_EQ(float8e4m3fnuz().encode(kInfinity, false), 0x80);
  EXPECT_EQ(float8e4m3fnuz().encode(-0.0), 0);
  EXPECT_EQ(float4e2m1().encode(1e9, false), 0x7);
}

TEST(SmallFloat, rounds_powers_of_two_up_or_down) {
  EXPECT_EQ(float8e8m0().encode_toward(3, true), 129);
  EXPECT_EQ(float8e8m0().encode_toward(3, false), 128);
  EXPECT_EQ(float8e8m0().encode_toward(4, false), 129);
  EXPECT_EQ(float8e8m0().encode_toward(-1, true), 255);
  EXPECT_EQ(float8e8m0().encode_toward(0, false), 0);
}

TEST(Tensor, widens_integers_that_lie_packed) {
  const std::vector<uint8_t> bytes = {0x9f, 0x07};
  const auto of = [&](DType dtype, int64_t count) {
    return Tensor::copy_of(dtype, {count}, bytes.data(), bytes_of(dtype, count)).to_int64();
  };
  EXPECT_THAT(of(DType::int4, 3), testing::ElementsAre(-1, -7, 7));
  EXPECT_THAT(of(DType::uint4, 3), testing::ElementsAre(15, 9, 7));
  EXPECT_THAT(of(DType::int2, 5), testing::ElementsAre(-1, -1, 1, -2, -1));
  EXPECT_THAT(of(DType::uint2, 4), testing::ElementsAre(3, 3, 1, 2));
}

}  // namespace
}  // namespace tessera

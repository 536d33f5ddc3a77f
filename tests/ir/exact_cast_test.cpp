#include "tessera/ir/exact_cast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tessera/base/float16.h"

namespace tessera {
namespace {

constexpr DType kWhole[] = {DType::boolean, DType::int8,   DType::int16,  DType::int32, DType::int64,
                            DType::uint8,   DType::uint16, DType::uint32, DType::uint64};
constexpr DType kFloats[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64};

template <typename T>
Tensor of(DType dtype, std::vector<T> elements) {
  const auto count = static_cast<int64_t>(elements.size());
  return Tensor::of(dtype, {count}, elements);
}

TEST(ExactCast, TakesZeroAndOneFromAnyTypeToAnyOfItsKind) {
  const Tensor whole = of<int64_t>(DType::int64, {0, 1, 1}), floats = of<float>(DType::float32, {0, 1, -0.5});
  for (DType from : kWhole)
    for (DType to : kWhole) {
      const Tensor made = exactly_as(exactly_as(whole, from).value(), to).value();
      EXPECT_EQ(made.dtype, to);
      EXPECT_THAT(made.dims, testing::ElementsAre(3));
      EXPECT_THAT(exactly_as(made, DType::int64)->as<int64_t>(), testing::ElementsAre(0, 1, 1));
    }
  for (DType from : kFloats)
    for (DType to : kFloats) {
      const Tensor made = exactly_as(exactly_as(floats, from).value(), to).value();
      EXPECT_EQ(made.dtype, to);
      EXPECT_THAT(exactly_as(made, DType::float32)->as<float>(), testing::ElementsAre(0, 1, -0.5));
    }
}

TEST(ExactCast, IsNoneBetweenFloatsAndOthers) {
  for (DType whole : kWhole)
    for (DType real : kFloats) {
      EXPECT_FALSE(exactly_as(Tensor::zeros(whole, {2}), real));
      EXPECT_FALSE(exactly_as(Tensor::zeros(real, {2}), whole));
    }
}

TEST(ExactCast, IsNoneWhereAnElementWouldChange) {
  EXPECT_FALSE(exactly_as(of<int32_t>(DType::int32, {2}), DType::boolean));
  EXPECT_FALSE(exactly_as(of<int64_t>(DType::int64, {-1}), DType::uint64));
  EXPECT_FALSE(exactly_as(of<int64_t>(DType::int64, {int64_t{1} << 31}), DType::int32));
  EXPECT_TRUE(exactly_as(of<int64_t>(DType::int64, {-(int64_t{1} << 31)}), DType::int32));
  EXPECT_FALSE(exactly_as(of<uint64_t>(DType::uint64, {~uint64_t{0}}), DType::int64));
  EXPECT_FALSE(exactly_as(of<double>(DType::float64, {0.1}), DType::float32));
  EXPECT_FALSE(exactly_as(of<double>(DType::float64, {1e300}), DType::float32));
  EXPECT_TRUE(exactly_as(of<double>(DType::float64, {0.375, -2}), DType::float16));
  EXPECT_FALSE(exactly_as(of<double>(DType::float64, {1e5}), DType::float16));
  EXPECT_FALSE(exactly_as(of<float>(DType::float32, {1.001F}), DType::bfloat16));
}

TEST(ExactCast, KeepsWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (DType to : {DType::float64, DType::float16, DType::bfloat16}) {
    const Tensor made = exactly_as(of<float>(DType::float32, {infinity, -infinity, NAN}), to).value();
    const Tensor back = exactly_as(made, DType::float32).value();
    EXPECT_EQ(back.as<float>()[0], infinity);
    EXPECT_EQ(back.as<float>()[1], -infinity);
    EXPECT_TRUE(std::isnan(back.as<float>()[2]));
  }
}

TEST(ExactCast, LeavesOtherTypesAlone) {
  EXPECT_FALSE(exactly_as(Tensor::zeros(DType::int4, {4}), DType::int8));
  EXPECT_FALSE(exactly_as(Tensor::zeros(DType::int8, {4}), DType::float8e4m3fn));
  EXPECT_TRUE(exactly_as(Tensor::zeros(DType::int64, {0, 3}), DType::int8));
}

}  // namespace
}  // namespace tessera

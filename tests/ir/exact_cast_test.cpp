#include "tessera/ir/exact_cast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tessera/base/float16.h"

namespace tessera {
namespace {

constexpr DType kTypes[] = {DType::boolean, DType::int8,    DType::int16,   DType::int32,  DType::int64,
                            DType::uint8,   DType::uint16,  DType::uint32,  DType::uint64, DType::float16,
                            DType::float32, DType::float64, DType::bfloat16};

Tensor bytes(std::vector<uint8_t> elements) {
  const auto count = static_cast<int64_t>(elements.size());
  return Tensor::of(DType::boolean, {count}, elements);
}

template <typename T>
Tensor of(DType dtype, std::vector<T> elements) {
  const auto count = static_cast<int64_t>(elements.size());
  return Tensor::of(dtype, {count}, elements);
}

TEST(ExactCast, TakesZeroAndOneFromAnyTypeToAnyType) {
  for (DType from : kTypes)
    for (DType to : kTypes) {
      const std::optional<Tensor> given = exactly_as(bytes({0, 1, 1}), from);
      ASSERT_TRUE(given) << name_of(from);
      const std::optional<Tensor> made = exactly_as(*given, to);
      ASSERT_TRUE(made) << name_of(from) << " to " << name_of(to);
      EXPECT_EQ(made->dtype, to);
      EXPECT_THAT(made->dims, testing::ElementsAre(3));
      EXPECT_THAT(exactly_as(*made, DType::int64)->as<int64_t>(), testing::ElementsAre(0, 1, 1));
    }
}

TEST(ExactCast, IsNoneWhereAnElementWouldChange) {
  EXPECT_FALSE(exactly_as(of<int32_t>(DType::int32, {2}), DType::boolean));
  EXPECT_FALSE(exactly_as(of<int64_t>(DType::int64, {-1}), DType::uint64));
  EXPECT_FALSE(exactly_as(of<int64_t>(DType::int64, {int64_t{1} << 31}), DType::int32));
  EXPECT_TRUE(exactly_as(of<int64_t>(DType::int64, {-(int64_t{1} << 31)}), DType::int32));
  EXPECT_FALSE(exactly_as(of<uint64_t>(DType::uint64, {~uint64_t{0}}), DType::int64));
  EXPECT_FALSE(exactly_as(of<int64_t>(DType::int64, {(int64_t{1} << 24) + 1}), DType::float32));
  EXPECT_TRUE(exactly_as(of<int64_t>(DType::int64, {int64_t{1} << 40}), DType::float32));
  EXPECT_FALSE(exactly_as(of<int64_t>(DType::int64, {std::numeric_limits<int64_t>::max()}), DType::float64));
  EXPECT_FALSE(exactly_as(of<double>(DType::float64, {0.1}), DType::float32));
  EXPECT_FALSE(exactly_as(of<double>(DType::float64, {1e300}), DType::float32));
  EXPECT_TRUE(exactly_as(of<double>(DType::float64, {0.375, -2}), DType::float16));
  EXPECT_FALSE(exactly_as(of<float>(DType::float32, {1.001F}), DType::bfloat16));
  EXPECT_FALSE(exactly_as(of<double>(DType::float64, {1.5}), DType::int64));
  EXPECT_FALSE(exactly_as(of<double>(DType::float64, {0x1p63}), DType::int64));
  EXPECT_TRUE(exactly_as(of<double>(DType::float64, {-0x1p63}), DType::int64));
  EXPECT_FALSE(exactly_as(of<double>(DType::float64, {-1}), DType::uint8));
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
  EXPECT_FALSE(exactly_as(of<float>(DType::float32, {NAN}), DType::int32));
  EXPECT_FALSE(exactly_as(of<float>(DType::float32, {infinity}), DType::int64));
}

TEST(ExactCast, LeavesOtherTypesAlone) {
  EXPECT_FALSE(exactly_as(Tensor::zeros(DType::int4, {4}), DType::int8));
  EXPECT_FALSE(exactly_as(Tensor::zeros(DType::int8, {4}), DType::float8e4m3fn));
  EXPECT_TRUE(exactly_as(Tensor::zeros(DType::int64, {0, 3}), DType::int8));
}

}  // namespace
}  // namespace tessera

#include "tessera/ir/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "error_of.h"
#include "tessera/base/error.h"

namespace tessera {
namespace {

using testing::Each;
using testing::ElementsAre;

TEST(dtype, names_are_read_back) {
  for (int32_t i = 1; i <= 26; ++i) {
    auto dtype = static_cast<DType>(i);
    EXPECT_NE(name_of(dtype), "undefined") << i;
    EXPECT_EQ(dtype_named(name_of(dtype)), dtype);
  }
  EXPECT_EQ(dtype_named("float"), DType::float32);
  EXPECT_EQ(dtype_named("double"), DType::float64);
  EXPECT_EQ(dtype_named("floot"), DType::undefined);
  EXPECT_EQ(name_of(DType::undefined), "undefined");
}

TEST(dtype, sizes) {
  EXPECT_EQ(bytes_of(DType::float32, 3), 12u);
  EXPECT_EQ(bytes_of(DType::boolean, 3), 3u);
  EXPECT_EQ(bytes_of(DType::int4, 3), 2u);  // packed, rounded up
  EXPECT_EQ(bytes_of(DType::uint2, 5), 2u);
  EXPECT_EQ(bits_of(DType::string), 0);
}

TEST(sizes, do_not_wrap_around) {
  const int64_t half = int64_t{1} << 31;
  EXPECT_EQ(count_of(Dims{half, half}), int64_t{1} << 62);
  EXPECT_EQ(count_of(Dims{half, half, 0}), 0);
  EXPECT_THROW(count_of(Dims{half, half, 2}), Error);
  EXPECT_THROW(bytes_of(DType::float32, int64_t{1} << 62), Error);
  EXPECT_THROW(Tensor::zeros(DType::float32, {half, half}), Error);
  EXPECT_NO_THROW(require_countable(DType::float32, Dims{half, 0}, "x"));
  EXPECT_THROW(require_countable(DType::float32, Dims{half, 0, half}, "x"), Error);  // its strides would overflow
  try {
    require_countable(DType::int8, Dims{half, half}, "x");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), testing::HasSubstr("'x' is int8 of [2147483648, 2147483648]"));
  }
}

TEST(dtype, kinds) {
  EXPECT_TRUE(is_float(DType::bfloat16));
  EXPECT_TRUE(is_float(DType::float8e5m2));
  EXPECT_TRUE(is_integer(DType::uint4));
  EXPECT_FALSE(is_integer(DType::boolean));
  EXPECT_FALSE(is_float(DType::string));
}

using test::error_of;

TEST(tensor, has_the_bytes_of_its_dimensions) {
  const std::vector<float> values = {1, 2, 3};
  EXPECT_THAT(error_of([&] { Tensor::of({2, 2}, values); }), testing::HasSubstr("16 bytes, but 12 were given"));
  EXPECT_THAT(error_of([&] { Tensor::borrow(DType::float32, {4}, values.data(), 12); }),
              testing::HasSubstr("takes 16 bytes, but it has 12"));
  EXPECT_THAT(error_of([&] { Tensor::borrow(DType::float32, {-1}, values.data(), 12); }),
              testing::HasSubstr("0 or more"));
  EXPECT_THAT(error_of([&] { Tensor::borrow(DType::float32, {1}, nullptr, 4); }), testing::HasSubstr("has 0"));
  Tensor cut = Tensor::of({3}, values);
  cut.dims = {30};
  EXPECT_THAT(error_of([&] { cut.require_whole("x"); }), testing::HasSubstr("'x' is float32 [30]"));
}

TEST(tensor, is_written_only_where_it_may_be) {
  std::vector<float> values = {1, 2, 3};
  Tensor own = Tensor::of({3}, values), lent = Tensor::borrow(DType::float32, {3}, values.data(), 12);
  Tensor open = Tensor::borrow_mutable(DType::float32, {3}, values.data(), 12);
  EXPECT_EQ(own.mutable_data(), own.data);
  EXPECT_EQ(open.mutable_data(), reinterpret_cast<std::byte*>(values.data()));
  EXPECT_FALSE(lent.is_writable());
  EXPECT_THAT(error_of([&] { lent.mutable_data(); }), testing::HasSubstr("float32 [3] is read only"));
  Tensor second = own;  // a slice
  second.data += 4;
  second.bytes = 4;
  second.dims = {1};
  EXPECT_THAT(error_of([&] { second.mutable_data(); }), testing::HasSubstr("float32 [1] is read only"));
  EXPECT_EQ(Tensor::borrow(DType::float32, {0}, nullptr, 0).mutable_data(), nullptr);
}

TEST(tensor, borrows_without_a_copy_and_keeps_the_owner) {
  auto owner = std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{5, 6});
  const std::weak_ptr<const void> alive = owner;
  {
    const Tensor tensor = Tensor::borrow(DType::int64, {2}, owner->data(), 16, owner);
    EXPECT_EQ(tensor.elements<int64_t>().data(), owner->data());
    owner.reset();
    EXPECT_FALSE(alive.expired());
    EXPECT_THAT(tensor.elements<int64_t>(), ElementsAre(5, 6));
  }
  EXPECT_TRUE(alive.expired());
}

TEST(tensor, elements_are_read_as_what_they_are) {
  EXPECT_THAT(Tensor::of<float>({2}, {1, 2}).elements<float>(), ElementsAre(1, 2));
  EXPECT_THAT(error_of([] {
                Tensor::of<float>({2}, {1, 2}).elements<int32_t>();
              }),
              testing::HasSubstr("a tensor of float32 is read as int32"));
  EXPECT_THAT(error_of([] { Tensor::of<int64_t>({2}, {1, 2}).elements<double>(); }), testing::HasSubstr("int64"));
  EXPECT_THAT(Tensor::of<uint8_t>(DType::boolean, {2}, {1, 0}).elements<uint8_t>(), ElementsAre(1, 0));
}

TEST(tensor, zeros_are_zero_and_aligned) {
  Tensor tensor = Tensor::zeros(DType::float32, {2, 3});
  EXPECT_EQ(tensor.count(), 6);
  EXPECT_EQ(tensor.bytes, 24u);
  EXPECT_THAT(tensor.as<float>(), Each(0.0f));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % 64, 0u);
}

TEST(tensor, copies_share_their_bytes) {
  Tensor tensor = Tensor::of<int32_t>(DType::int32, {2}, {7, 8});
  Tensor copy = tensor;
  EXPECT_EQ(copy.data, tensor.data);
  tensor = Tensor();
  EXPECT_THAT(copy.as<int32_t>(), ElementsAre(7, 8));
}

TEST(tensor, scalars_and_empty_tensors) {
  EXPECT_EQ(count_of(Dims{}), 1);
  EXPECT_EQ(count_of(Dims{2, 0}), 0);
  EXPECT_EQ(count_of(Dims{int64_t{1} << 62, 8, 0}), 0);
  EXPECT_EQ(Tensor::zeros(DType::int64, {0, 5}).bytes, 0u);
  EXPECT_THAT(Tensor::of<float>(DType::float32, {}, {2}).as<float>(), ElementsAre(2));
}

TEST(tensor, bytes_must_fit_the_type) {
  float one = 1;
  EXPECT_THROW(Tensor::copy_of(DType::float32, {2}, &one, sizeof one), Error);
}

TEST(tensor, integers_widen) {
  EXPECT_THAT(Tensor::of<int8_t>(DType::int8, {2}, {-1, 127}).to_int64(), ElementsAre(-1, 127));
  EXPECT_THAT(Tensor::of<uint8_t>(DType::uint8, {1}, {255}).to_int64(), ElementsAre(255));
  EXPECT_THAT(Tensor::of<uint8_t>(DType::boolean, {2}, {0, 1}).to_int64(), ElementsAre(0, 1));
  EXPECT_THAT(Tensor::of<uint32_t>(DType::uint32, {1}, {4294967295u}).to_int64(), ElementsAre(4294967295));
  EXPECT_THAT(Tensor::of<int64_t>(DType::int64, {1}, {-5}).to_int64(), ElementsAre(-5));
  EXPECT_THROW(Tensor::zeros(DType::float32, {1}).to_int64(), Error);
}

}  // namespace
}  // namespace tessera

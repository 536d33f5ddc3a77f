#include "tessera/ir/hash.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

namespace tessera {
namespace {

uint64_t hash_of(const Tensor& tensor) {
  Hash hash;
  hash.add(tensor);
  return hash.value();
}

Tensor bytes_of(size_t count) {
  Tensor tensor = Tensor::zeros(DType::uint8, {static_cast<int64_t>(count)});
  for (size_t i = 0; i < count; ++i) tensor.mutable_data()[i] = static_cast<std::byte>(i * 7 % 251);
  return tensor;
}

TEST(Hash, tells_every_single_bit) {
  for (const size_t count : {1, 7, 8, 255, 256, 257, 1003}) {
    Tensor tensor = bytes_of(count);
    std::set<uint64_t> known = {hash_of(tensor)};
    for (size_t bit = 0; bit < 8 * count; ++bit) {
      tensor.mutable_data()[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      EXPECT_TRUE(known.insert(hash_of(tensor)).second) << "bit " << bit << " of " << count << " bytes";
      tensor.mutable_data()[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    }
  }
}

// At any distance, also if the two words reach one lane.
TEST(Hash, tells_two_signs_that_change) {
  constexpr int64_t kFloats = 512;
  const auto hash_with = [&](int64_t first, int64_t second) {
    Tensor tensor = Tensor::zeros(DType::float32, {kFloats});
    auto* values = reinterpret_cast<float*>(tensor.mutable_data());
    for (int64_t i = 0; i < kFloats; ++i) values[i] = 1;
    values[first] = values[second] = -1;
    return hash_of(tensor);
  };
  const uint64_t unchanged = hash_with(1, 1);
  for (int64_t second = 2; second < kFloats; ++second) EXPECT_NE(hash_with(1, second), unchanged) << second;
}

TEST(Hash, tells_the_end_of_zeros_and_bytes_that_trade_places) {
  std::set<uint64_t> known;
  for (int64_t count : {0, 1, 8, 255, 256, 257, 512})
    EXPECT_TRUE(
        known.insert(hash_of_bytes(Tensor::zeros(DType::uint8, {count}).data, static_cast<size_t>(count))).second);
  Tensor tensor = bytes_of(600);
  const uint64_t before = hash_of(tensor);
  for (size_t distance : {1, 8, 256}) {
    std::swap(tensor.mutable_data()[3], tensor.mutable_data()[3 + distance]);
    EXPECT_NE(hash_of(tensor), before) << distance;
    std::swap(tensor.mutable_data()[3], tensor.mutable_data()[3 + distance]);
  }
}

TEST(Hash, is_of_bytes_wherever_they_lie) {
  const Tensor tensor = bytes_of(777);
  std::vector<std::byte> shifted(778);
  std::memcpy(shifted.data() + 1, tensor.data, 777);
  EXPECT_EQ(hash_of_bytes(tensor.data, 777), hash_of_bytes(shifted.data() + 1, 777));
}

TEST(Hash, tells_types_and_extents) {
  const Tensor floats = Tensor::zeros(DType::float32, {2, 3});
  EXPECT_NE(hash_of(floats), hash_of(Tensor::zeros(DType::int32, {2, 3})));
  EXPECT_NE(hash_of(floats), hash_of(Tensor::zeros(DType::float32, {3, 2})));
}

}  // namespace
}  // namespace tessera

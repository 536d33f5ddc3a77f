#include "tessera/ir/hash.h"

#include <gtest/gtest.h>

#include <set>

namespace tessera {
namespace {

uint64_t hash_of(const Tensor& tensor, HashSample sample) {
  Hash hash;
  hash.add(tensor, sample);
  return hash.value();
}

/// Zeros, but for these bytes.
Tensor bytes_with(int64_t count, std::initializer_list<std::pair<int64_t, int>> set) {
  Tensor tensor = Tensor::zeros(DType::uint8, {count});
  for (const auto& [at, value] : set) tensor.mutable_data()[at] = static_cast<std::byte>(value);
  return tensor;
}

TEST(Hash, tells_every_single_bit_of_what_counts_whole) {
  constexpr int64_t kBytes = 51;  // no whole number of words
  std::set<uint64_t> seen{hash_of(bytes_with(kBytes, {}), {4, 16})};
  for (int64_t at = 0; at < kBytes; ++at)
    for (int bit = 0; bit < 8; ++bit)
      EXPECT_TRUE(seen.insert(hash_of(bytes_with(kBytes, {{at, 1 << bit}}), {4, 16})).second) << at << ", " << bit;
}

// The last bit of a word: of two float32, the second one's sign.
TEST(Hash, tells_two_signs_that_change) {
  std::set<uint64_t> seen{hash_of(bytes_with(64, {}), {1, 64})};
  for (int64_t a = 7; a < 64; a += 8)
    for (int64_t b = a + 8; b < 64; b += 8)
      EXPECT_TRUE(seen.insert(hash_of(bytes_with(64, {{a, 128}, {b, 128}}), {1, 64})).second) << a << ", " << b;
}

TEST(Hash, samples_from_the_first_byte_to_the_last) {
  constexpr int64_t kBytes = 1000;
  const HashSample sample{3, 8};  // 0 to 7, 496 to 503, 992 to 999
  std::set<int64_t> counted;
  for (int64_t at = 0; at < kBytes; ++at)
    if (hash_of(bytes_with(kBytes, {{at, 1}}), sample) != hash_of(bytes_with(kBytes, {}), sample)) counted.insert(at);
  EXPECT_EQ(counted, (std::set<int64_t>{0,   1,   2,   3,   4,   5,   6,   7,   496, 497, 498, 499,
                                        500, 501, 502, 503, 992, 993, 994, 995, 996, 997, 998, 999}));
}

TEST(Hash, tells_types_and_extents) {
  const HashSample sample{1, 64};
  std::set<uint64_t> seen;
  for (const Tensor& tensor : {Tensor::zeros(DType::float32, {2, 3}), Tensor::zeros(DType::float32, {3, 2}),
                               Tensor::zeros(DType::int32, {2, 3}), Tensor::zeros(DType::float32, {6})})
    EXPECT_TRUE(seen.insert(hash_of(tensor, sample)).second);
}

}  // namespace
}  // namespace tessera

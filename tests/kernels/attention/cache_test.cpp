#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernels/run_kernel.h"
#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> written(const std::vector<Tensor>& inputs, Dims dims, const Attributes& attributes = {}) {
  return values_of<float>(
      run_kernel_one("TensorScatter", inputs, DType::float32, std::move(dims), {.attributes = attributes}));
}

TEST(TensorScatter, writes_each_sample_from_its_own_place_on) {
  const Tensor cache = floats({2, 3, 2}, {1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16});
  const Tensor update = floats({2, 2, 2}, {-1, -2, -3, -4, -5, -6, -7, -8});
  EXPECT_THAT(written({cache, update, ints({2}, {1, 0})}, {2, 3, 2}, {{"axis", int64_t{1}}}),
              ElementsAre(1, 2, -1, -2, -3, -4, -5, -6, -7, -8, 15, 16));
  EXPECT_THAT(written({cache, update}, {2, 3, 2}), ElementsAre(-1, -2, -3, -4, 5, 6, -5, -6, -7, -8, 15, 16))
      << "the dimension before the last is the default, and the start the default place";
}

TEST(TensorScatter, goes_around_the_end_if_it_is_circular) {
  const Tensor cache = floats({1, 2, 3}, {1, 2, 3, 4, 5, 6}), update = floats({1, 2, 2}, {-1, -2, -3, -4});
  EXPECT_THAT(
      written({cache, update, ints({1}, {2})}, {1, 2, 3}, {{"axis", int64_t{-1}}, {"mode", std::string("circular")}}),
      ElementsAre(-2, 2, -1, -4, 5, -3));
}

TEST(TensorScatter, goes_around_from_any_number_on) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();  // 1 more than a multiple of 3
  const Tensor cache = floats({1, 3, 1}, {1, 2, 3}), update = floats({1, 3, 1}, {-1, -2, -3});
  EXPECT_THAT(written({cache, update, ints({1}, {most})}, {1, 3, 1}, {{"mode", std::string("circular")}}),
              ElementsAre(-3, -1, -2));
  EXPECT_THAT(
      written({floats({1, 0, 1}, {}), update, ints({1}, {most})}, {1, 0, 1}, {{"mode", std::string("circular")}}),
      ElementsAre());
}

// Three parts of a cache of five rows, of two samples.
TEST(TensorScatter, writes_into_each_part_what_belongs_there) {
  const Tensor update = floats({2, 2, 1}, {-1, -2, -3, -4});
  const auto part = [&](int64_t begin, int64_t rows, std::vector<int64_t> first, const std::string& mode) {
    std::vector<float> cache;
    for (int64_t sample : {0, 10})
      for (int64_t row = begin; row < begin + rows; ++row) cache.push_back(static_cast<float>(sample + row));
    return values_of<float>(run_kernel_one(
        "TensorScatterShard",
        {floats({2, rows, 1}, cache), update, ints({2}, std::move(first)), ints({}, {begin}), ints({}, {5})},
        DType::float32, {2, rows, 1}, {.attributes = {{"axis", int64_t{1}}, {"mode", mode}}, .domain = "tessera"}));
  };
  EXPECT_THAT(part(0, 2, {1, 3}, "linear"), ElementsAre(0, -1, 10, 11));
  EXPECT_THAT(part(2, 2, {1, 3}, "linear"), ElementsAre(-2, 3, 12, -3));
  EXPECT_THAT(part(4, 1, {1, 3}, "linear"), ElementsAre(4, -4));
  EXPECT_THAT(part(0, 2, {4, 5}, "circular"), ElementsAre(-2, 1, -3, -4));
  EXPECT_THAT(part(4, 1, {4, 5}, "circular"), ElementsAre(-1, 14));
  EXPECT_THAT(part(4, 0, {1, 3}, "linear"), ElementsAre());
  EXPECT_THAT(values_of<float>(run_kernel_one(
                  "TensorScatterShard",
                  {floats({1, 2, 1}, {7, 8}), floats({1, 0, 1}, {}), ints({1}, {0}), ints({}, {0}), ints({}, {0})},
                  DType::float32, {1, 2, 1}, {.domain = "tessera"})),
              ElementsAre(7, 8))
      << "nothing is written, whatever is said of the rows";
  try {
    part(0, 2, {4, 0}, "linear");
    ADD_FAILURE() << "row 5 of 5 is written";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 rows from 4 on are outside a cache of 5"));
  }
}

TEST(TensorScatter, takes_extents_of_zero) {
  const Tensor cache = floats({1, 2, 1}, {1, 2});
  EXPECT_THAT(written({cache, floats({1, 0, 1}, {}), ints({1}, {2})}, {1, 2, 1}), ElementsAre(1, 2));
  EXPECT_THAT(written({floats({0, 2, 1}, {}), floats({0, 1, 1}, {}), ints({0}, {})}, {0, 2, 1}), ElementsAre());
}

TEST(TensorScatter, refuses_rows_beyond_the_cache) {
  const Tensor cache = floats({1, 2, 1}, {1, 2}), update = floats({1, 1, 1}, {3});
  for (int64_t first : {int64_t{2}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    try {
      written({cache, update, ints({1}, {first})}, {1, 2, 1});
      ADD_FAILURE() << first;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("1 rows from {} on are outside a cache of 2", first)));
    }
  }
}

}  // namespace
}  // namespace tessera::kernels

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "kernels/run_kernel.h"
#include "tessera/base/error.h"
#include "tessera/kernels/kernel.h"

namespace tessera::kernels {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

std::vector<int64_t> counting(int64_t count) {
  std::vector<int64_t> values(count);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

Tensor counted(Dims dims) {
  const int64_t count = count_of(dims);
  return ints(std::move(dims), counting(count));
}

std::vector<int64_t> run_ints(const std::string& op, const std::vector<Tensor>& inputs, Dims dims,
                              const Attributes& attributes = {}) {
  return values_of<int64_t>(run_kernel_one(op, inputs, DType::int64, std::move(dims), {.attributes = attributes}));
}

/// The indices of a flat position, major first, and back.
Dims indices_of(int64_t flat, const Dims& dims) {
  Dims indices(dims.size());
  for (size_t d = dims.size(); d-- > 0; flat /= dims[d]) indices[d] = flat % dims[d];
  return indices;
}
int64_t flat_of(const Dims& indices, const Dims& dims) {
  int64_t flat = 0;
  for (size_t d = 0; d < dims.size(); ++d) flat = flat * dims[d] + indices[d];
  return flat;
}

TEST(Movement, views_keep_the_bytes) {
  const Tensor x = counted({2, 3});
  for (const std::string op : {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"}) {
    EXPECT_TRUE(find_kernel(op, "")->view) << op;
    EXPECT_EQ(run_ints(op, {x}, {3, 2}), counting(6)) << op;
  }
}

TEST(Movement, transpose_of_any_rank_and_element_size) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 200; ++trial) {
    Dims dims(random() % 6);
    for (int64_t& extent : dims) extent = random() % 20 == 0 ? 0 : 1 + random() % (dims.size() < 3 ? 90 : 5);
    std::vector<int64_t> permutation(dims.size());
    std::iota(permutation.begin(), permutation.end(), 0);
    std::shuffle(permutation.begin(), permutation.end(), random);
    Dims result;
    for (int64_t axis : permutation) result.push_back(dims[axis]);
    const std::vector<int64_t> x = counting(count_of(dims));
    const std::vector<uint8_t> narrow(x.begin(), x.end());
    const Attributes attributes = {{"perm", permutation}};
    const std::vector<int64_t> y = run_ints("Transpose", {ints(dims, x)}, result, attributes);
    const std::vector<uint8_t> bytes = values_of<uint8_t>(run_kernel_one(
        "Transpose", {Tensor::of(DType::uint8, dims, narrow)}, DType::uint8, result, {.attributes = attributes}));
    for (size_t i = 0; i < y.size(); ++i) {
      const Dims to = indices_of(static_cast<int64_t>(i), result);
      Dims from(dims.size());
      for (size_t d = 0; d < dims.size(); ++d) from[permutation[d]] = to[d];
      ASSERT_EQ(y[i], x[flat_of(from, dims)]);
      ASSERT_EQ(bytes[i], narrow[flat_of(from, dims)]);
    }
  }
}

TEST(Movement, a_large_transpose_is_shared_among_threads) {
  constexpr int64_t rows = 301, columns = 517;
  const std::vector<int64_t> x = counting(rows * columns);
  const Tensor y =
      run_kernel_one("Transpose", {ints({rows, columns}, x)}, DType::int64, {columns, rows}, {.threads = 3});
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r) ASSERT_EQ(y.as<int64_t>()[c * rows + r], x[r * columns + c]);
}

TEST(Movement, transpose_reverses_by_default_and_checks_perm) {
  EXPECT_THAT(run_ints("Transpose", {counted({2, 3})}, {3, 2}), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THROW(run_ints("Transpose", {counted({2, 3})}, {2, 3}, {{"perm", std::vector<int64_t>{0, 0}}}), Error);
}

TEST(Movement, concat_and_split_are_inverse) {
  const Tensor a = ints({2, 1}, {1, 4}), b = ints({2, 2}, {2, 3, 5, 6}), empty = ints({2, 0}, {});
  const Attributes axis = {{"axis", int64_t{-1}}};
  EXPECT_THAT(run_ints("Concat", {a, empty, b}, {2, 3}, axis), ElementsAre(1, 2, 3, 4, 5, 6));
  const std::vector<Tensor> parts = run_kernel("Split", {counted({2, 3}), ints({2}, {1, 2})},
                                               {{DType::int64, {2, 1}}, {DType::int64, {2, 2}}}, {.attributes = axis});
  EXPECT_THAT(values_of<int64_t>(parts[0]), ElementsAre(1, 4));
  EXPECT_THAT(values_of<int64_t>(parts[1]), ElementsAre(2, 3, 5, 6));
  const std::vector<Tensor> rows =
      run_kernel("Split", {counted({3, 2})}, {{DType::int64, {2, 2}}, {DType::int64, {1, 2}}},
                 {.attributes = {{"num_outputs", int64_t{2}}}});
  EXPECT_THAT(values_of<int64_t>(rows[1]), ElementsAre(5, 6));
}

TEST(Movement, split_skips_a_part_that_nobody_wants) {
  const std::vector<Tensor> parts = run_kernel("Split", {counted({5}), ints({2}, {3, 2})}, {{}, {DType::int64, {2}}});
  EXPECT_THAT(values_of<int64_t>(parts[1]), ElementsAre(4, 5));
}

TEST(Movement, slice_follows_numpy) {
  const Tensor x = counted({3, 4});
  auto slice = [&](std::vector<int64_t> starts, std::vector<int64_t> ends, std::vector<int64_t> axes,
                   std::vector<int64_t> steps, Dims dims) {
    const Dims count = {static_cast<int64_t>(starts.size())};
    return run_ints("Slice", {x, ints(count, starts), ints(count, ends), ints(count, axes), ints(count, steps)}, dims);
  };
  constexpr int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  EXPECT_THAT(slice({1, 0}, {3, 2}, {0, 1}, {1, 1}, {2, 2}), ElementsAre(5, 6, 9, 10));
  EXPECT_THAT(slice({0}, {most}, {1}, {2}, {3, 2}), ElementsAre(1, 3, 5, 7, 9, 11));
  EXPECT_THAT(slice({-1}, {least}, {-1}, {-1}, {3, 4}), ElementsAre(4, 3, 2, 1, 8, 7, 6, 5, 12, 11, 10, 9));
  EXPECT_THAT(slice({most, -2}, {0, most}, {0, 1}, {-2, 1}, {1, 2}), ElementsAre(11, 12));
  EXPECT_THAT(slice({2}, {1}, {0}, {1}, {0, 4}), ElementsAre());
  EXPECT_THAT(slice({-9}, {-3}, {1}, {1}, {3, 1}), ElementsAre(1, 5, 9));
  EXPECT_THROW(slice({0}, {2}, {0}, {0}, {2, 4}), Error);
  EXPECT_THROW(slice({0}, {2}, {0}, {1}, {3, 4}), Error);
  EXPECT_THAT(run_ints("Slice", {x, ints({1}, {2}), ints({1}, {3})}, {1, 4}), ElementsAre(9, 10, 11, 12));
}

TEST(Movement, expand_repeats_along_missing_dimensions) {
  const Tensor column = ints({2, 1}, {1, 2});
  EXPECT_THAT(run_ints("Expand", {column, ints({3}, {2, 1, 3})}, {2, 2, 3}),
              ElementsAre(1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2));
  EXPECT_THAT(run_ints("Expand", {ints({}, {7}), ints({1}, {3})}, {3}), ElementsAre(7, 7, 7));
  EXPECT_THROW(run_ints("Expand", {column, ints({1}, {3})}, {3, 1}), Error);
}

TEST(Movement, tile_repeats_whole_dimensions) {
  EXPECT_THAT(run_ints("Tile", {counted({2, 2}), ints({2}, {2, 3})}, {4, 6}),
              ElementsAre(1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4, 1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4));
}

TEST(Movement, pad_in_every_mode) {
  auto pad = [](const Tensor& x, std::vector<int64_t> pads, const std::string& mode, Dims dims) {
    const Dims count = {static_cast<int64_t>(pads.size())};
    return run_ints("Pad", {x, ints(count, pads), ints({}, {9})}, dims, {{"mode", mode}});
  };
  const Tensor row = counted({3});
  EXPECT_THAT(pad(row, {2, 1}, "constant", {6}), ElementsAre(9, 9, 1, 2, 3, 9));
  EXPECT_THAT(pad(row, {2, 1}, "edge", {6}), ElementsAre(1, 1, 1, 2, 3, 3));
  EXPECT_THAT(pad(row, {2, 1}, "reflect", {6}), ElementsAre(3, 2, 1, 2, 3, 2));
  EXPECT_THAT(pad(row, {2, 1}, "wrap", {6}), ElementsAre(2, 3, 1, 2, 3, 1));
  EXPECT_THAT(pad(row, {-1, 2}, "constant", {4}), ElementsAre(2, 3, 9, 9));
  EXPECT_THAT(pad(row, {-1, -1}, "reflect", {1}), ElementsAre(2));
  // Cropping comes before repetition.
  EXPECT_THAT(pad(row, {-1, 3}, "wrap", {5}), ElementsAre(2, 3, 2, 3, 2));
  EXPECT_THAT(pad(row, {2, -1}, "wrap", {4}), ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(pad(row, {3, -1}, "reflect", {5}), ElementsAre(2, 1, 2, 1, 2));
  EXPECT_THAT(pad(row, {-2, 2}, "edge", {3}), ElementsAre(3, 3, 3));
  EXPECT_THAT(pad(row, {-4, 3}, "constant", {2}), ElementsAre(9, 9));
  EXPECT_THAT(pad(counted({2, 2}), {1, 0, 0, 1}, "constant", {3, 3}), ElementsAre(9, 9, 9, 1, 2, 9, 3, 4, 9));
  EXPECT_THAT(pad(counted({2, 2}), {1, 1, 0, 0}, "reflect", {3, 3}), ElementsAre(4, 3, 4, 2, 1, 2, 4, 3, 4));
  EXPECT_THAT(pad(ints({0}, {}), {1, 1}, "constant", {2}), ElementsAre(9, 9));
  EXPECT_THROW(pad(ints({0}, {}), {1, 1}, "edge", {2}), Error);
  EXPECT_THAT(run_ints("Pad", {counted({2, 2}), ints({2}, {0, 1}), Tensor{}, ints({1}, {-1})}, {2, 3}),
              ElementsAre(1, 2, 0, 3, 4, 0));
}

TEST(Movement, blocks_move_between_depth_and_space) {
  const Tensor x = counted({1, 4, 1, 2});
  const Attributes two = {{"blocksize", int64_t{2}}};
  EXPECT_THAT(run_ints("DepthToSpace", {x}, {1, 1, 2, 4}, two), ElementsAre(1, 3, 2, 4, 5, 7, 6, 8));
  const Tensor wide = counted({1, 8, 1, 1});
  EXPECT_THAT(run_ints("DepthToSpace", {wide}, {1, 2, 2, 2}, two), ElementsAre(1, 3, 5, 7, 2, 4, 6, 8));
  EXPECT_THAT(run_ints("DepthToSpace", {wide}, {1, 2, 2, 2}, {{"blocksize", int64_t{2}}, {"mode", std::string("CRD")}}),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(run_ints("SpaceToDepth", {ints({1, 1, 2, 4}, {1, 3, 2, 4, 5, 7, 6, 8})}, {1, 4, 1, 2}, two),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(Movement, range_counts_by_its_extent) {
  EXPECT_THAT(run_ints("Range", {ints({}, {3}), ints({}, {-4}), ints({}, {-3})}, {3}), ElementsAre(3, 0, -3));
  const Tensor halves = run_kernel_one("Range", {floats({}, {1}), floats({}, {2.2f}), floats({}, {0.5})},
                                       DType::float32, {3}, {.known = false});
  EXPECT_THAT(values_of<float>(halves), ElementsAre(1, 1.5, 2));
}

TEST(Movement, constants_and_identities_are_made) {
  EXPECT_THAT(run_ints("ConstantOfShape", {ints({1}, {3})}, {3}, {{"value", ints({1}, {5})}}), ElementsAre(5, 5, 5));
  const Tensor zeros = run_kernel_one("ConstantOfShape", {ints({1}, {2})}, DType::float32, {2});
  EXPECT_THAT(values_of<float>(zeros), ElementsAre(0, 0));
  EXPECT_THAT(run_ints("EyeLike", {counted({2, 3})}, {2, 3}, {{"k", int64_t{1}}}), ElementsAre(0, 1, 0, 0, 0, 1));
  EXPECT_THAT(run_ints("EyeLike", {counted({3, 2})}, {3, 2}, {{"k", int64_t{-1}}}), ElementsAre(0, 0, 1, 0, 0, 1));
}

TEST(Movement, trilu_keeps_one_triangle) {
  const Tensor x = counted({1, 3, 3});
  EXPECT_THAT(run_ints("Trilu", {x}, {1, 3, 3}), ElementsAre(1, 2, 3, 0, 5, 6, 0, 0, 9));
  EXPECT_THAT(run_ints("Trilu", {x}, {1, 3, 3}, {{"upper", int64_t{0}}}), ElementsAre(1, 0, 0, 4, 5, 0, 7, 8, 9));
  EXPECT_THAT(run_ints("Trilu", {x, ints({}, {1})}, {1, 3, 3}), ElementsAre(0, 2, 3, 0, 0, 6, 0, 0, 0));
  EXPECT_THAT(run_ints("Trilu", {x, ints({}, {-1})}, {1, 3, 3}, {{"upper", int64_t{0}}}),
              ElementsAre(0, 0, 0, 4, 0, 0, 7, 8, 0));
  const Tensor over = run_kernel_one("Trilu", {x, ints({}, {INT64_MAX})}, DType::int64, {1, 3, 3}, {.in_place = 0});
  EXPECT_THAT(values_of<int64_t>(over), testing::Each(0));
}

TEST(Movement, shape_and_size_are_those_of_the_operand) {
  const Tensor x = counted({2, 3, 4});
  EXPECT_THAT(run_ints("Shape", {x}, {3}), ElementsAre(2, 3, 4));
  EXPECT_THAT(run_ints("Shape", {x}, {1}, {{"start", int64_t{-2}}, {"end", int64_t{-1}}}), ElementsAre(3));
  EXPECT_THAT(run_ints("Size", {x}, {}), ElementsAre(24));
}

// Parts of elements that share bytes are joined and cut where they fill bytes.
TEST(Concat, TakesElementsOfLessThanAByte) {
  const auto codes = [](Dims dims, std::vector<uint8_t> bytes) {
    Tensor tensor = Tensor::zeros(DType::int4, std::move(dims));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t*>(tensor.mutable_data()));
    return tensor;
  };
  const Tensor a = codes({2, 2}, {0x21, 0x43}), b = codes({2, 4}, {0x65, 0x87, 0xA9, 0xCB});
  const Tensor joined = run_kernel_one("Concat", {a, b}, DType::int4, {2, 6}, {{{"axis", int64_t{1}}}});
  const std::vector<uint8_t> expected = {0x21, 0x65, 0x87, 0x43, 0xA9, 0xCB};
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), reinterpret_cast<const uint8_t*>(joined.data)));
  EXPECT_THROW(
      run_kernel_one("Concat", {codes({2, 3}, {0x21, 0x43, 0x65}), a}, DType::int4, {2, 5}, {{{"axis", int64_t{1}}}}),
      Error);
}

}  // namespace
}  // namespace tessera::kernels

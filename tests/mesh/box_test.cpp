#include <gtest/gtest.h>

#include <numeric>

#include "tessera/mesh/byte_box.h"

namespace tessera {
namespace {

std::vector<int32_t> numbers(const Dims& dims) {
  std::vector<int32_t> all(static_cast<size_t>(count_of(dims)));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Pieces one after the other must equal a copy of the whole box.
void expect_pieces(const Box& box, int64_t most) {
  SCOPED_TRACE(most);
  auto whole = numbers(box.dims);
  std::vector<int32_t> expected(static_cast<size_t>(box.count())), pieces;
  copy_from_whole(expected.data(), whole.data(), box, sizeof(int32_t));
  for_each_piece(box, most, [&](const Box& piece) {
    EXPECT_TRUE(piece.count() <= most || piece.contiguous());
    std::vector<int32_t> copy(static_cast<size_t>(piece.count()));
    copy_from_whole(copy.data(), whole.data(), piece, sizeof(int32_t));
    pieces.insert(pieces.end(), copy.begin(), copy.end());
  });
  EXPECT_EQ(pieces, expected);
}

TEST(Pieces, give_the_box_in_order) {
  for (int64_t most : {1, 2, 3, 5, 7, 100}) {
    expect_pieces({{4, 6}, {1, 2}, {3, 3}}, most);
    expect_pieces({{2, 3, 4, 5}, {0, 1, 0, 2}, {2, 2, 4, 3}}, most);
    expect_pieces({{5}, {1}, {3}}, most);
  }
}

TEST(Pieces, contiguous_box_is_one_piece_of_any_size) {
  int visits = 0;
  for_each_piece({{8, 100}, {2, 0}, {4, 100}}, 10, [&](const Box& piece) {
    ++visits;
    EXPECT_EQ(piece.count(), 400);
  });
  EXPECT_EQ(visits, 1);
}

TEST(Pieces, empty_box_has_none) {
  for_each_piece({{8, 4}, {8, 0}, {0, 4}}, 10, [](const Box&) { FAIL(); });
}

TEST(ByteBox, counts_bytes_of_several_elements) {
  const auto columns = byte_box({{4, 6}, {0, 2}, {4, 2}}, DType::int4);
  ASSERT_TRUE(columns.has_value());
  EXPECT_EQ(columns->box.dims, (Dims{4, 3}));
  EXPECT_EQ(columns->box.offsets, (Dims{0, 1}));
  EXPECT_EQ(columns->box.extents, (Dims{4, 1}));
  EXPECT_EQ(columns->unit, 1u);
  EXPECT_FALSE(byte_box({{4, 6}, {0, 1}, {4, 2}}, DType::int4));      // begins within a byte
  EXPECT_FALSE(byte_box({{4, 5}, {0, 0}, {3, 5}}, DType::int4));      // ends within a byte
  const auto rows = byte_box({{4, 5}, {2, 0}, {2, 5}}, DType::int4);  // two rows fill five bytes
  ASSERT_TRUE(rows.has_value());
  EXPECT_EQ(rows->box.dims, (Dims{10}));
  EXPECT_EQ(rows->box.offsets, (Dims{5}));
  EXPECT_EQ(rows->box.extents, (Dims{5}));
}

TEST(ByteBox, takes_whole_tensors_and_whole_elements_as_they_are) {
  EXPECT_EQ(byte_box({{3, 5}, {0, 0}, {3, 5}}, DType::uint4)->box.extents, (Dims{8}));
  const auto floats = byte_box({{4, 5}, {1, 1}, {2, 3}}, DType::float32);
  EXPECT_EQ(floats->box.extents, (Dims{2, 3}));
  EXPECT_EQ(floats->unit, 4u);
}

}  // namespace
}  // namespace tessera

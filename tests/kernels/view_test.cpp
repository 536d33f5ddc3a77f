#include "tessera/kernels/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera::kernels {
namespace {

using testing::ElementsAre;

Node node_of(std::string type) {
  Node node;
  node.op_type = std::move(type);
  return node;
}

// A part of [4, 5, 3·6] along the last dimension, as [4, 5, 2, 3] heads, transposed.
TEST(View, HeadsOfASplitProjection) {
  const View part{{4, 5, 6}, {90, 18, 1}, 12};
  auto heads = reshaped(part, {4, 5, 2, 3});
  ASSERT_TRUE(heads);
  EXPECT_THAT(heads->strides, ElementsAre(90, 18, 3, 1));
  EXPECT_EQ(heads->offset, 12);
  Node transpose = node_of("Transpose");
  transpose.set("perm", std::vector<int64_t>{0, 2, 1, 3});
  const View turned = transposed(transpose, *heads);
  EXPECT_THAT(turned.dims, ElementsAre(4, 2, 5, 3));
  EXPECT_THAT(turned.strides, ElementsAre(90, 3, 18, 1));
  EXPECT_FALSE(turned.is_dense());
  EXPECT_FALSE(reshaped(turned, {4, 2, 15})) << "positions and widths do not step as one";
}

TEST(View, DimensionsThatStepAsOneMergeAndPart) {
  const View rows{{6, 4}, {8, 1}, 0};  // of [6, 8]
  EXPECT_THAT(reshaped(rows, {2, 3, 2, 2})->strides, ElementsAre(24, 8, 2, 1));
  EXPECT_FALSE(reshaped(rows, {24}));
  EXPECT_THAT(reshaped({{6, 1, 4}, {8, 77, 1}, 0}, {6, 4, 1})->strides, ElementsAre(8, 1, testing::_));
  EXPECT_THAT(reshaped({{2, 3}, {3, 1}, 5}, {6})->strides, ElementsAre(1));
  EXPECT_THAT(reshaped({{3, 0, 2}, {1, 1, 1}, 0}, {0, 7})->dims, ElementsAre(0, 7));
  EXPECT_THAT(reshaped({{4, 3, 2}, {0, 2, 1}, 0}, {4, 6})->strides, ElementsAre(0, 1));
  EXPECT_FALSE(reshaped({{4, 3, 2}, {0, 2, 1}, 0}, {12, 2}));
}

TEST(View, ExtentsOfOneMayStepAnyhow) {
  EXPECT_TRUE((View{{1, 3, 1}, {99, 1, 42}, 0}).is_dense());
  EXPECT_FALSE((View{{2, 3}, {6, 2}, 0}).is_dense());
}

TEST(View, SlicesOfViewsStepThroughTheSameMemory) {
  const View x{{4, 6}, {12, 2}, 1};
  const View y =
      sliced(node_of("Slice"), x, {{-1, 1}, {-100, 5}, std::vector<int64_t>{0, 1}, std::vector<int64_t>{-1, 2}});
  EXPECT_THAT(y.dims, ElementsAre(4, 2));
  EXPECT_THAT(y.strides, ElementsAre(-12, 4));
  EXPECT_EQ(y.offset, 1 + 3 * 12 + 2);
}

TEST(View, RepetitionStandsStill) {
  const View x = expanded(node_of("Expand"), View::dense({3, 1}), {2, 3, 4});
  EXPECT_THAT(x.strides, ElementsAre(0, 1, 0));
  EXPECT_THROW(expanded(node_of("Expand"), View::dense({3, 2}), {3, 4}), Error);
}

// Whatever the strides, as of a rank without elements.
TEST(View, WithoutElementsTakesAnyExtentsWithoutElements) {
  const View empty{{2, 0, 3}, {1, 7, 9}, 0};
  for (const Dims& dims : {Dims{0}, Dims{6, 0}, Dims{0, 5}, Dims{3, 0, 2}}) {
    const auto view = reshaped(empty, dims);
    ASSERT_TRUE(view);
    EXPECT_EQ(view->dims, dims);
  }
}

}  // namespace
}  // namespace tessera::kernels

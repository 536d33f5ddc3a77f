#include "tessera/train/class_axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Expr s(const char* name) {
  return Expr::symbol(name);
}

TEST(ClassAxes, AreTheDimensionThatLabelsLack) {
  EXPECT_THAT(class_axes({8, 10}, {8}), ElementsAre(1));
  EXPECT_THAT(class_axes({8, 10, 32}, {8, 32}), ElementsAre(1));
  EXPECT_THAT(class_axes({8, 32, 10}, {8, 32}), ElementsAre(2));
  EXPECT_THAT(class_axes({8, 10, 6, 7}, {8, 6, 7}), ElementsAre(1));
  EXPECT_THAT(class_axes({8, 6, 7, 10}, {8, 6, 7}), ElementsAre(3));
}

TEST(ClassAxes, AreSeveralWhereClassesAreAsManyAsAnotherExtent) {
  EXPECT_THAT(class_axes({8, 7, 7}, {8, 7}), ElementsAre(1, 2));
  EXPECT_THAT(class_axes({8, 6, 6, 6}, {8, 6, 6}), ElementsAre(1, 2, 3));
  EXPECT_THAT(class_axes({8, 6, 5, 6}, {8, 5, 6}), ElementsAre(1));
  EXPECT_THAT(class_axes({8, 6, 6, 5}, {8, 6, 5}), ElementsAre(1, 2));
}

TEST(ClassAxes, AreNeverTheBatch) {
  EXPECT_THAT(class_axes({10, 10}, {10}), ElementsAre(1));
  EXPECT_THAT(class_axes({7, 7, 5}, {7, 5}), ElementsAre(1));
}

TEST(ClassAxes, AreNoneForLabelsOfOtherExtents) {
  EXPECT_THAT(class_axes({8, 10, 32}, {8, 31}), IsEmpty());
  EXPECT_THAT(class_axes({8, 10, 32}, {8}), IsEmpty());
  EXPECT_THAT(class_axes({8, 10}, {8, 1}), IsEmpty());
  EXPECT_THAT(class_axes({8}, {}), IsEmpty());
}

TEST(ClassAxes, CompareSymbolsByName) {
  EXPECT_THAT(class_axes({s("b"), s("s"), 10}, {s("b"), s("s")}), ElementsAre(2));
  EXPECT_THAT(class_axes({s("b"), 5, s("h"), s("w")}, {s("b"), s("h"), s("w")}), ElementsAre(1));
  EXPECT_THAT(class_axes({s("b"), s("s"), 10}, {s("b"), s("t")}), IsEmpty());
}

TEST(ClassAxes, FitNumbersWhereSizesAreOpen) {
  EXPECT_THAT(class_axes({s("b"), s("s"), 10}, {4, 6}), ElementsAre(2));
  EXPECT_THAT(class_axes({s("b"), s("s"), 10}, {4, 10}), ElementsAre(1, 2));
}

}  // namespace
}  // namespace tessera::train

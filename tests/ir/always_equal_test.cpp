#include "tessera/ir/always_equal.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Fingerprint, IsThatOfEqualExpressions) {
  const Expr b = Expr::symbol("batch"), s = Expr::symbol("sequence");
  EXPECT_EQ(fingerprint(b * s + b), fingerprint(b * (s + 1)));
  EXPECT_EQ(fingerprint(floordiv(b, 2) + mod(b, 2)), fingerprint(floordiv(b + 1, 2)));
  EXPECT_EQ(fingerprint(min(b, 5) + max(b, 5)), fingerprint(b + 5));
  EXPECT_EQ(fingerprint(Expr(7)), fingerprint(Expr(3) + 4));
}

TEST(Fingerprint, TellsApartWhatDiffersAtSomeSizes) {
  const Expr b = Expr::symbol("batch"), s = Expr::symbol("sequence");
  EXPECT_NE(fingerprint(b), fingerprint(s));
  EXPECT_NE(fingerprint(b), fingerprint(b + 1));
  EXPECT_NE(fingerprint(b), fingerprint(min(b, 1024))) << "they differ at large sizes only";
  EXPECT_NE(fingerprint(b), fingerprint(max(b, 2))) << "they differ at 1 only";
  EXPECT_NE(fingerprint(floordiv(b, 2)), fingerprint(floordiv(b + 1, 2)));
  EXPECT_NE(fingerprint(b), fingerprint(min(b, 8192)));
  EXPECT_NE(fingerprint(max(b - 1024, 0)), fingerprint(Expr(0)));
  EXPECT_NE(fingerprint(b * 2 + s), fingerprint(s * 2 + b));
  EXPECT_NE(fingerprint(Expr(504)), fingerprint(Expr(505)));
  EXPECT_NE(fingerprint(b * s), fingerprint(b + s));
}

TEST(NeverNegative, LooksAtSmallSizesAndLargeOnes) {
  const Expr n = Expr::symbol("n");
  EXPECT_TRUE(never_negative(n - floordiv(n, 3)));
  EXPECT_TRUE(never_negative(n - floordiv(n + 2, 3) - floordiv(n + 1, 3)));
  EXPECT_FALSE(never_negative(n - 1));
  EXPECT_FALSE(never_negative(n - 1024));
  EXPECT_FALSE(never_negative(65536 - n));
}

TEST(AlwaysEqual, LooksAtSizesBeyondLimits) {
  const Expr n = Expr::symbol("n");
  EXPECT_FALSE(always_equal(max(n - 1024, 0), 0));
  EXPECT_FALSE(always_equal(min(n, 8192), n));
  EXPECT_TRUE(always_equal(min(n, 3) * n * n * n * n, n * n * n * n * min(n, 3)))
      << "though it overflows at large sizes";
}

TEST(AlwaysEqual, ExtentsAreComparedWhereBothCanBe) {
  const Expr past = Expr::symbol("past"), s = Expr::symbol("sequence");
  const Expr windows = floordiv(floordiv(s - 1, 2), 3);
  EXPECT_FALSE(always_equal(windows, max(0, windows)));
  EXPECT_TRUE(equal_as_extents(windows, max(0, windows)));
  for (int64_t window : {130, 512, 1024, 4096})
    EXPECT_FALSE(equal_as_extents(past - s, past - min(s, window))) << window;
  EXPECT_FALSE(equal_as_extents(s - 2000000, 2 * s - 4000000)) << "nothing is known of where both can be";
  EXPECT_FALSE(equal_as_extents(2, -1));
}

}  // namespace
}  // namespace tessera

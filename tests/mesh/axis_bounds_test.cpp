#include "tessera/mesh/axis_bounds.h"

#include <gtest/gtest.h>

#include "tessera/ir/always_equal.h"

namespace tessera {
namespace {

const Mesh kMesh = Mesh::parse("dp=3,tp=4");
const Expr kDp = Expr::axis_index("dp"), kTp = Expr::axis_index("tp");

TEST(AxisBounds, SettleQuotientsAndRemaindersOfTheRank) {
  const Expr rank = with_axis_bounds(4 * kDp + kTp, kMesh);
  EXPECT_EQ(without_axis_bounds(floordiv(rank, 4), kMesh), kDp);
  EXPECT_EQ(without_axis_bounds(mod(rank, 4), kMesh), kTp);
  EXPECT_EQ(without_axis_bounds(min(rank, 11), kMesh), 4 * kDp + kTp);
  EXPECT_TRUE(with_axis_bounds(floordiv(kTp, 4), kMesh).is(0));
}

TEST(AxisBounds, LetSymbolsBe) {
  const Expr other = Expr::symbol("b") + mod(Expr::symbol("b"), 4) + mod(kTp, 3) + max(kDp, Expr::symbol("c"));
  EXPECT_EQ(without_axis_bounds(with_axis_bounds(other, kMesh), kMesh), other);
}

TEST(AxisBounds, MakeEqualWhatAgreesOnAllRanks) {
  const Expr next = mod(kTp + 1, 4), also = kTp + 1 - 4 * max(0, kTp - 2);
  EXPECT_FALSE(always_equal(next, also));
  EXPECT_TRUE(always_equal(with_axis_bounds(next, kMesh), with_axis_bounds(also, kMesh)));
}

}  // namespace
}  // namespace tessera

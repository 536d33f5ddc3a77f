#include "tessera/mesh/axis_use.h"

#include <gtest/gtest.h>

#include <set>

#include "tessera/mesh/sharding.h"

namespace tessera {
namespace {

TEST(AxisUse, DropIndicesOnWhichNothingDepends) {
  const Mesh mesh = Mesh::parse("dp=3,tp=4");
  const Expr dp = Expr::axis_index("dp"), tp = Expr::axis_index("tp");
  EXPECT_TRUE(without_idle_axes(max(0, dp - 2) + mod(tp, 4) - tp, mesh).is(0));
  EXPECT_EQ(without_idle_axes(Expr::symbol("b") * min(1, dp + 1) + 2 * tp, mesh).str(), "2*@tp + b");
  const Expr uses_both = mod(tp + dp, 3);
  EXPECT_EQ(without_idle_axes(uses_both, mesh), uses_both);
  const Mesh large = Mesh::parse("dp=100");
  const Expr idle = max(0, dp - 99);
  EXPECT_EQ(without_idle_axes(idle, large), idle) << "ranks are looked at one by one only where they are few";
}

// On every set of ranks of a small mesh.
TEST(AxisUse, WhatIsAlikeOnRanksIsWhatItIsThere) {
  const Mesh mesh = Mesh::parse("a=2,b=2,c=2");
  const Expr a = Expr::axis_index("a"), b = Expr::axis_index("b"), c = Expr::axis_index("c"), s = Expr::symbol("s");
  for (const Expr& expr : {b, 4 * c, a + b, mod(a + c, 2) * s, s - a * b, b - b * c, 2 * a + b - c})
    for (unsigned set = 1; set < 256; ++set) {
      std::vector<int> ranks;
      std::set<Expr> values;
      for (int rank = 0; rank < 8; ++rank)
        if (set >> rank & 1) {
          ranks.push_back(rank);
          values.insert(bind_rank(expr, mesh, mesh.coordinates(rank)));
        }
      const Expr expected = values.size() == 1 ? *values.begin() : expr;
      EXPECT_EQ(without_idle_axes(expr, mesh, ranks), expected) << expr.str() << " on the ranks of " << set;
    }
}

}  // namespace
}  // namespace tessera

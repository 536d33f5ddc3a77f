#include "tessera/spmd/reshard/messages.h"

#include <gtest/gtest.h>

namespace tessera::spmd {
namespace {

TEST(ByMember, IsShortAndExact) {
  const Expr me = Expr::axis_index("x");
  EXPECT_EQ(by_member(me, {4, 4, 4}), Expr(4));
  EXPECT_EQ(by_member(me, {0, 3, 6}), 3 * me);
  for (const std::vector<Expr>& values : std::vector<std::vector<Expr>>{
           {4, 4, 3}, {0, 4, 8, 11}, {1, 0, 0, 5, 5}, {Expr::symbol("s"), 0, Expr::symbol("s") * 2}, {7}}) {
    const Expr all = by_member(me, values);
    for (size_t m = 0; m < values.size(); ++m)
      EXPECT_EQ(bind_rank(all, Mesh({{"x", 8}}), {static_cast<int64_t>(m)}), values[m]);
  }
}

}  // namespace
}  // namespace tessera::spmd

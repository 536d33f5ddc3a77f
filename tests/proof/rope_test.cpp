#include "tessera/proof/rope.h"

#include <gtest/gtest.h>

namespace tessera::proof {
namespace {

const Number kX = Mixer().add("x").number(), kY = Mixer().add("y").number();

Expr batch() {
  return Expr::symbol("batch");
}

TEST(Rope, PutTogetherAgainIsWhatWasCut) {
  const Rope x(kX, 0, 8);
  for (int64_t at : {0, 1, 3, 8}) {
    Rope whole = x.cut(0, at).value();
    whole.append(x.cut(at, 8).value());
    EXPECT_EQ(whole.number(), kX) << at;
  }
}

TEST(Rope, OfOtherPiecesOrInAnotherOrderIsAnother) {
  const Rope x(kX, 0, 8);
  Rope turned = x.cut(4, 8).value();
  turned.append(x.cut(0, 4).value());
  EXPECT_NE(turned.number(), kX);
  Rope twice = x.cut(0, 4).value();
  twice.append(x.cut(0, 4).value());
  EXPECT_NE(twice.number(), kX);
  Rope mixed = x.cut(0, 4).value();
  mixed.append(Rope(kY, 0, 8).cut(4, 8).value());
  EXPECT_NE(mixed.number(), kX);
  EXPECT_NE(x.cut(0, 4)->number(), x.cut(0, 5)->number());
  EXPECT_NE(x.cut(0, 4)->number(), x.cut(4, 8)->number());
  EXPECT_NE(x.cut(0, 4)->number(), Rope(kX, 1, 8).cut(0, 4)->number());
}

TEST(Rope, CutsAcrossSeams) {
  Rope both(kX, 0, 5);
  both.append(Rope(kY, 0, 5));
  Rope expected = Rope(kX, 0, 5).cut(3, 5).value();
  expected.append(Rope(kY, 0, 5).cut(0, 2).value());
  EXPECT_EQ(both.cut(3, 7)->number(), expected.number());
  EXPECT_EQ(both.cut(5, 10)->number(), kY);
}

TEST(Rope, OfSymbolicExtentsIsCutWhereItsSeamsAre) {
  const Expr half = floordiv(batch(), 2), rest = batch() - half;
  Rope both(kX, 0, half);
  both.append(Rope(kY, 0, rest));
  EXPECT_EQ(both.cut(half, batch())->number(), kY);
  EXPECT_EQ(both.cut(0, floordiv(batch(), 2))->number(), kX);
  EXPECT_FALSE(both.cut(1, 3)) << "which of the two these are of depends on the size";
  EXPECT_EQ(Rope(kX, 0, batch()).cut(0, half)->number(), Rope(kX, 0, batch()).cut(0, batch() - rest)->number());
}

}  // namespace
}  // namespace tessera::proof

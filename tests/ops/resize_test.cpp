#include <gmock/gmock.h>

#include "ops/one_node.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

TEST(Resize, KnowsItsShapeFromSizes) {
  OneNode node("Resize");
  node.operand("n c 8 w").absent().absent().expressions({Expr::symbol("n"), Expr::symbol("c"), 16, 12});
  EXPECT_EQ(node.type(), "float32 [n, c, 16, 12]");
  EXPECT_EQ(node.rule(), "a b c 1, , , 1 -> a b c 1 | c: halo");
}

TEST(Resize, ARanksSizesAreItsOwn) {
  OneNode node("Resize");
  node.operand("n 12 8 8").absent().absent().expressions({Expr::symbol("n"), 12, 16, 16});
  EXPECT_EQ(node.localized("b", 4), "Resize(A, _, _, [n, 3, 16, 16]) -> float32 [n, 3, 16, 16]\n");
}

TEST(Resize, IsSplitByAnyFactor) {
  const auto rule = [](const char* mode, const char* places, int64_t size) {
    OneNode node("Resize");
    node.operand("8").absent().absent().ints({size}).set("mode", std::string(mode));
    node.set("coordinate_transformation_mode", std::string(places));
    return node.rule();
  };
  EXPECT_EQ(rule("linear", "half_pixel", 16), "a, , , 1 -> a | a: halo");
  EXPECT_EQ(rule("nearest", "asymmetric", 24), "a, , , 1 -> a | a: halo");
  EXPECT_EQ(rule("linear", "half_pixel", 24), "a, , , 1 -> a | a: halo");
  EXPECT_EQ(rule("linear", "align_corners", 16), "a, , , 1 -> a | a: halo");
  EXPECT_EQ(rule("cubic", "half_pixel", 4), "a, , , 1 -> a | a: halo");
  EXPECT_EQ(rule("linear", "half_pixel", 1), "1, , , 1 -> 1");
  OneNode symbolic("Resize");
  symbolic.operand("n").absent().absent().ints({24}).set("mode", std::string("linear"));
  EXPECT_EQ(symbolic.rule(), "1, , , 1 -> 1") << "what a rank reads is not known";
}

TEST(Resize, SumsThatMeetANumberBeyondTheRegionAreWholeFirst) {
  const auto partials = [](float beyond) {
    OneNode node("Resize");
    node.operand("4 8").operand("4").absent().ints({4, 6}).set("coordinate_transformation_mode",
                                                               std::string("tf_crop_and_resize"));
    node.set("extrapolation_value", beyond);
    return node.partials();
  };
  EXPECT_EQ(partials(9), "");
  EXPECT_NE(partials(0), "");
}

TEST(Resize, APartStatesItsExtents) {
  OneNode node("Resize", "tessera");
  node.operand("4 n").absent().absent().absent().ints({2, 3, 7, 1, 5, 0, 6, 6, 0, 6});
  EXPECT_EQ(node.type(), "float32 [3, 6]");
  OneNode wrong("Resize", "tessera");
  wrong.operand("4 n").absent().absent().absent().ints({2, 3, 7, 1, 5});
  EXPECT_THAT(wrong.error(), HasSubstr("its place has 5 numbers; it must have 5 for each dimension"));
}

TEST(Resize, NeedsScalesOrSizes) {
  OneNode node("Resize");
  node.operand("n c 8 8");
  EXPECT_THAT(node.error(), HasSubstr("either scales or sizes"));
  OneNode policy("Resize");
  policy.operand("n c 8 8")
      .absent()
      .absent()
      .ints({1, 1, 16, 16})
      .set("keep_aspect_ratio_policy", std::string("not_larger"));
  EXPECT_THAT(policy.error(), HasSubstr("'not_larger' is not supported"));
}

}  // namespace
}  // namespace tessera::ops

#include <gmock/gmock.h>

#include <cmath>

#include "ops/one_node.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

TEST(Elementwise, KeepsTypeAndSymbolicShape) {
  OneNode node("Gelu");
  node.operand("batch s 64", DType::bfloat16);
  EXPECT_EQ(node.type(), "bfloat16 [batch, s, 64]");
  EXPECT_EQ(node.rule(), "a b c -> a b c");
  EXPECT_EQ(node.partials(), "");
  EXPECT_EQ(node.flops(), "640*batch*s");
}

TEST(Elementwise, BroadcastsAndGivesExtentsOfOneNoFactor) {
  OneNode node("Add");
  node.operand("batch 1 s 64").operand("6 s 1");
  EXPECT_EQ(node.type(), "float32 [batch, 6, s, 64]");
  EXPECT_EQ(node.rule(), "a 1 c d, b c 1 -> a b c d");
  EXPECT_EQ(node.partials(), "sum{0,1}");
}

TEST(Elementwise, PrefersTheSimplerOfUnequalExtents) {
  OneNode cut("Mul");
  cut.operand("min(512,s)").operand("s");
  EXPECT_EQ(cut.type(), "float32 [s]");
  EXPECT_EQ(cut.rule(), "a, a -> a");

  OneNode known("Mul");
  known.operand("s").operand("16");
  EXPECT_EQ(known.type(), "float32 [16]");
}

TEST(Elementwise, RefusesShapesThatDoNotBroadcast) {
  OneNode node("Add");
  node.operand("2 3").operand("2 4");
  EXPECT_THAT(node.error(), HasSubstr("[shape] Add"));
  EXPECT_THAT(node.error(), HasSubstr("[2, 3] and [2, 4] do not broadcast"));
}

TEST(Elementwise, RefusesMixedTypesAndAsksForACast) {
  OneNode mixed("Mul");
  mixed.operand("2").operand("2", DType::int64);
  EXPECT_THAT(mixed.error(), HasSubstr("float32 and int64; Mul needs one type; insert a Cast"));

  OneNode integral("Exp");
  integral.operand("2", DType::int64);
  EXPECT_THAT(integral.error(), HasSubstr("Exp works on floats"));

  OneNode lonely("Sub");
  lonely.operand("2");
  EXPECT_THAT(lonely.error(), HasSubstr("it has 1 operand; Sub takes 2"));

  OneNode condition("Where");
  condition.operand("2").operand("2").operand("2");
  EXPECT_THAT(condition.error(), HasSubstr("it must be bool"));
}

TEST(Elementwise, ComparisonsGiveBool) {
  OneNode less("Less");
  less.operand("4").operand("4");
  EXPECT_EQ(less.type(), "bool [4]");

  OneNode nan("IsNaN");
  nan.operand("s");
  EXPECT_EQ(nan.type(), "bool [s]");
}

TEST(Elementwise, PowKeepsTheTypeOfItsBase) {
  OneNode node("Pow");
  node.operand("4").operand("", DType::int64);
  EXPECT_EQ(node.type(), "float32 [4]");
}

std::string partials(std::string_view type, size_t operands, DType dtype = DType::float32) {
  OneNode node(type);
  for (size_t i = 0; i < operands; ++i) node.operand("8", dtype);
  return node.partials();
}

TEST(Elementwise, SaysWhichOperandsMayBePartialTogether) {
  EXPECT_EQ(partials("Sum", 3), "sum{0,1,2}");
  EXPECT_EQ(partials("Max", 2), "max{0,1}");
  EXPECT_EQ(partials("Min", 2), "min{0,1}");
  EXPECT_EQ(partials("Tanh", 1), "");
  // Integers wrap around, for any values.
  EXPECT_EQ(partials("Sub", 2, DType::int32), "sum{0,1}");
  EXPECT_EQ(partials("Mul", 2, DType::int32), "sum{0} sum{1}");
  EXPECT_EQ(partials("Neg", 1, DType::int32), "sum{0}");
  EXPECT_EQ(partials("Relu", 1, DType::int32), "max{0} min{0}");
  EXPECT_EQ(partials("Div", 2, DType::int64), "") << "integer division rounds";
  // For floats, a rank without a term of the sum has -0, which must stay -0.
  EXPECT_EQ(partials("Sub", 2), "") << "-0 - -0 is 0";
  EXPECT_EQ(partials("Neg", 1), "");
  EXPECT_EQ(partials("Relu", 1), "") << "-0 stays so, and -1 becomes 0";
  EXPECT_EQ(partials("Mul", 2), "") << "-0 * inf is NaN";
  EXPECT_EQ(partials("Div", 2), "") << "-0 / 0 is NaN";

  OneNode select("Where");
  select.operand("8", DType::boolean).operand("8").operand("8");
  EXPECT_EQ(select.partials(), "sum{1,2} max{1,2} min{1,2}");
}

TEST(Elementwise, ScalesSumsByPositiveNumbersAlone) {
  auto scaled = [](std::string_view type, double number, DType dtype = DType::float32) {
    OneNode node(type);
    node.operand("8", dtype).number(dtype, number);
    return node.partials();
  };
  for (DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    EXPECT_EQ(scaled("Mul", 0.125, dtype), "sum{0}");
    EXPECT_EQ(scaled("Div", 8, dtype), "sum{0}");
  }
  for (double number : std::vector<double>{0.0, -0.0, -2.0, INFINITY, -INFINITY, NAN}) {
    EXPECT_EQ(scaled("Mul", number), "") << number;
    EXPECT_EQ(scaled("Div", number), "") << number;
  }
  OneNode left("Mul");
  left.number(DType::float32, 3).operand("8");
  EXPECT_EQ(left.partials(), "sum{1}");
}

TEST(Elementwise, ClipMayLackABound) {
  OneNode node("Clip");
  node.operand("b 4").absent().operand("");
  EXPECT_EQ(node.type(), "float32 [b, 4]");
  EXPECT_EQ(node.rule(), "a b, ,  -> a b");
}

TEST(Cast, KeepsSumsOnlyWhereNothingRounds) {
  auto partials = [](DType from, DType to) {
    OneNode node("Cast");
    node.operand("b 1", from).set("to", static_cast<int64_t>(to));
    EXPECT_EQ(node.type(), fmt::format("{} [b, 1]", name_of(to)));
    EXPECT_EQ(node.rule(), "a 1 -> a 1");
    return node.partials();
  };
  EXPECT_EQ(partials(DType::bfloat16, DType::float32), "sum{0}");
  EXPECT_EQ(partials(DType::int64, DType::int32), "sum{0}");
  EXPECT_EQ(partials(DType::float32, DType::bfloat16), "");
  EXPECT_EQ(partials(DType::float32, DType::int32), "");
}

TEST(Cast, RefusesATypeThatIsNone) {
  OneNode node("Cast");
  node.operand("2").set("to", int64_t{99});
  EXPECT_THAT(node.error(), HasSubstr("'to' is 99"));
}

TEST(Cast, CastLikeBecomesACastOnARank) {
  OneNode node("CastLike");
  node.operand("8").operand("3", DType::int32);
  EXPECT_EQ(node.type(), "int32 [8]");
  EXPECT_EQ(node.localized("a", 2), "Cast(A) -> int32 [4]\n");
}

TEST(Dropout, IsTheIdentityUnlessTraining) {
  OneNode node("Dropout");
  node.operand("b 4").results(2);
  EXPECT_EQ(node.type(0), "float32 [b, 4]");
  EXPECT_EQ(node.type(1), "bool [b, 4]");
  EXPECT_EQ(node.rule(), "a b -> a b, a b");

  OneNode training("Dropout");
  training.operand("b 4").absent().operand("", DType::boolean);
  EXPECT_THAT(training.error(), HasSubstr("export the model for inference"));
}

}  // namespace
}  // namespace tessera::ops

#include <gmock/gmock.h>

#include "ops/one_node.h"

namespace tessera::ops {
namespace {

// Quantizers write the scale of a whole bias as a list of one, and leave out the axis, which then is 1.
TEST(DequantizeLinear, takes_a_list_of_one_scale_as_one_scale) {
  for (const char* x : {"5", "1", "b 5"}) {
    OneNode node("DequantizeLinear");
    node.operand(x, DType::int32).operand("1").operand("1", DType::int32);
    EXPECT_NO_THROW(node.type()) << x;
  }
}

TEST(DequantizeLinear, refuses_lists_of_other_lengths) {
  OneNode node("DequantizeLinear");
  node.operand("5", DType::int32).operand("4").set("axis", int64_t{0});
  EXPECT_THAT(node.error(), testing::HasSubstr("it has 4 scales for dimension 0, which is 5"));
}

TEST(DequantizeLinear, wants_a_scale_for_each_block_of_a_list) {
  const auto error_of = [](const char* scales) {
    OneNode node("DequantizeLinear");
    node.operand("64", DType::int8).operand(scales).set("axis", int64_t{0}).set("block_size", int64_t{16});
    return node.error();
  };
  EXPECT_EQ(error_of("4"), "no error");
  EXPECT_THAT(error_of("1"), testing::HasSubstr("in blocks of 16 along dimension 0"));
}

TEST(DynamicQuantizeLinear, takes_one_operand_of_floats) {
  OneNode two("DynamicQuantizeLinear");
  two.operand("4 6").operand("1");
  EXPECT_THAT(two.error(), testing::HasSubstr("it has 2 operands; it takes 1"));
  OneNode codes("DynamicQuantizeLinear");
  codes.operand("4 6", DType::int8);
  EXPECT_THAT(codes.error(), testing::HasSubstr("it quantizes floats, not int8; Cast it"));
}

// Elements of 4 bits are split where bytes are not cut, and zero points of 4 bits with them, or not at all.
TEST(DequantizeLinear, splits_elements_of_less_than_a_byte_between_bytes) {
  const auto rule_of = [](const char* x, const char* scale, const char* zero, int64_t axis, int64_t block = 0) {
    OneNode node("DequantizeLinear");
    node.operand(x, DType::int4).operand(scale).set("axis", axis).set("block_size", block);
    if (zero) node.operand(zero, DType::int4);
    return node.rule();
  };
  EXPECT_EQ(rule_of("4 6", "", nullptr, 0), "a 1,  -> a 1");
  EXPECT_EQ(rule_of("4 3", "", nullptr, 0), "1 1,  -> 1 1");
  EXPECT_EQ(rule_of("4 2 3", "", nullptr, 0), "a 1 1,  -> a 1 1");
  EXPECT_EQ(rule_of("4 6", "4", nullptr, 0), "a 1, a -> a 1");
  EXPECT_EQ(rule_of("4 6", "4", "4", 0), "1 1, 1, 1 -> 1 1") << "zero points of neighbours share bytes";
  EXPECT_EQ(rule_of("4 6", "6", "6", 1), "a 1, 1, 1 -> a 1");
  EXPECT_EQ(rule_of("4 64", "4 2", "4 2", 1, 32), "a 1, a 1, a 1 -> a 1");
  EXPECT_EQ(rule_of("4 96", "4 3", "4 3", 1, 32), "1 1, 1 1, 1 1 -> 1 1");
}

}  // namespace
}  // namespace tessera::ops

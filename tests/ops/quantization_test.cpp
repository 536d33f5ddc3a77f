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

}  // namespace
}  // namespace tessera::ops

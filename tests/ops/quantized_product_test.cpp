#include <gmock/gmock.h>

#include "ops/one_node.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

constexpr DType kByte = DType::uint8, kSigned = DType::int8;

TEST(MatMulInteger, sums_in_int32_and_splits_lists_of_zero_points) {
  OneNode node("MatMulInteger");
  node.operand("b m k", kByte).operand("k 6", kSigned).operand("m", kByte).operand("6", kSigned);
  EXPECT_EQ(node.type(), "int32 [b, m, 6]");
  EXPECT_EQ(node.rule(), "b m k, k n, m, n -> b m n | k: sum");
  EXPECT_EQ(node.partials(), "");  // a zero point is not part of a sum
}

TEST(MatMulInteger, keeps_single_zero_points_whole) {
  OneNode node("MatMulInteger");
  node.operand("4 8", kSigned).operand("8 6", kByte).operand("1", kSigned).operand("", kByte);
  EXPECT_EQ(node.rule(), "m k, k n, 1,  -> m n | k: sum");
}

TEST(MatMulInteger, refuses_other_types) {
  OneNode floats("MatMulInteger");
  floats.operand("4 8").operand("8 6", kByte);
  EXPECT_THAT(floats.error(), HasSubstr("operand 0 is float32"));
  OneNode zero("MatMulInteger");
  zero.operand("4 8", kByte).operand("8 6", kByte).operand("", kSigned);
  EXPECT_THAT(zero.error(), HasSubstr("its zero point 'C' is int8"));
  OneNode list("MatMulInteger");
  list.operand("4 8", kByte).operand("8 6", kByte).absent().operand("5", kByte);
  EXPECT_THAT(list.error(), HasSubstr("a list of 6"));
}

TEST(ConvInteger, splits_as_a_convolution_and_its_list_of_zero_points_with_its_channels) {
  OneNode node("ConvInteger");
  node.operand("n 8 9", kByte)
      .operand("6 4 3", kSigned)
      .operand("", kByte)
      .operand("6", kSigned)
      .set("group", int64_t{2});
  node.set("pads", std::vector<int64_t>{1, 1});
  EXPECT_EQ(node.type(), "int32 [n, 6, 9]");
  EXPECT_EQ(node.rule(), "n (g c) x0, (g m) c 1, , (g m) -> n (g m) x0 | c: sum, x0: halo");
  EXPECT_EQ(node.partials(), "");
}

TEST(ConvInteger, refuses_other_types_and_zero_points) {
  OneNode floats("ConvInteger");
  floats.operand("1 4 8").operand("6 4 3", kSigned);
  EXPECT_THAT(floats.error(), HasSubstr("operand 0 is float32"));
  OneNode list("ConvInteger");
  list.operand("1 4 8", kByte).operand("6 4 3", kSigned).operand("4", kByte);
  EXPECT_THAT(list.error(), HasSubstr("must be one number"));
}

struct NBits : OneNode {
  NBits(int64_t bits, int64_t block) : OneNode("MatMulNBits", "com.microsoft") {
    set("bits", bits).set("block_size", block);
  }
};

TEST(MatMulNBits, splits_its_sum_between_blocks) {
  NBits node(4, 32);
  node.operand("b s 96").operand("6 3 16", kByte).operand("6 3");
  EXPECT_EQ(node.type(), "float32 [b, s, 6]");
  EXPECT_EQ(node.rule(), "b m (k k_in), n k 1, n k -> b m n | k: sum, k_in: whole");
  EXPECT_EQ(node.flops(), "1152*b*s");
}

TEST(MatMulNBits, keeps_blocks_together_whose_zero_points_share_a_byte) {
  NBits node(4, 16);
  node.operand("m 64").operand("6 4 8", kByte).operand("6 4").operand("6 2", kByte);
  EXPECT_EQ(node.rule(),
            "m (k k_pair k_in), n (k k_pair) 1, n (k k_pair), n k -> m n | k: sum, k_pair: whole, k_in: whole");
  NBits bytes(8, 16);
  bytes.operand("m 64").operand("6 4 16", kByte).operand("6 4").operand("6 4", kByte);
  EXPECT_EQ(bytes.rule(), "m (k k_in), n k 1, n k, n k -> m n | k: sum, k_in: whole");
  NBits odd(4, 16);
  odd.operand("m 48").operand("6 3 8", kByte).operand("6 3").operand("6 2", kByte);
  EXPECT_EQ(odd.rule(), "m 1, n 1 1, n 1, n 1 -> m n");
}

TEST(MatMulNBits, keeps_a_sum_whole_whose_last_block_is_short) {
  NBits node(8, 32);
  node.operand("m 40").operand("6 2 32", kByte).operand("6 2");
  EXPECT_EQ(node.rule(), "m 1, n 1 1, n 1 -> m n");
}

TEST(MatMulNBits, says_what_it_refuses) {
  NBits bits(2, 32);
  bits.operand("m 64").operand("6 2 8", kByte).operand("6 2");
  EXPECT_THAT(bits.error(), HasSubstr("its codes have 2 bits; 4 and 8 are supported"));
  NBits block(4, 24);
  block.operand("m 48").operand("6 2 12", kByte).operand("6 2");
  EXPECT_THAT(block.error(), HasSubstr("its blocks have 24 rows"));
  NBits codes(4, 32);
  codes.operand("m 64").operand("6 3 16", kByte).operand("6 3");
  EXPECT_THAT(codes.error(), HasSubstr("they must be uint8 [n, 2, 16]"));
  NBits order(4, 32);
  order.operand("m 64").operand("6 2 16", kByte).operand("6 2").absent().operand("64", DType::int32);
  EXPECT_THAT(order.error(), HasSubstr("g_idx"));
}

TEST(MatMulBlocks, has_its_scales_beside_its_rows) {
  OneNode node("MatMulBlocks", "tessera");
  node.operand("b m 64").operand("64 6", kByte).operand("2 6").operand("2 6", kByte).set("block_size", int64_t{32});
  EXPECT_EQ(node.type(), "float32 [b, m, 6]");
  EXPECT_EQ(node.rule(), "b m (k k_in), (k k_in) n, k n, k n -> b m n | k: sum, k_in: whole");
}

TEST(MatMulBlocks, keeps_columns_together_that_share_a_byte) {
  OneNode node("MatMulBlocks", "tessera");
  node.operand("m 64").operand("64 6", DType::int4).operand("2 6").set("block_size", int64_t{32});
  EXPECT_EQ(node.rule(),
            "m (k k_in), (k k_in) (n n_pair), k (n n_pair) -> m (n n_pair) | k: sum, k_in: whole, n_pair: whole");
}

TEST(MatMulBlocks, has_one_scale_per_column_without_blocks) {
  OneNode node("MatMulBlocks", "tessera");
  node.operand("b m 40").operand("40 6", kByte).operand("6").operand("6", kByte);
  EXPECT_EQ(node.rule(), "b m k, k n, n, n -> b m n | k: sum");
  OneNode single("MatMulBlocks", "tessera");
  single.operand("m 40").operand("40 6", kSigned).operand("");
  EXPECT_EQ(single.rule(), "m k, k n,  -> m n | k: sum");
}

TEST(MatMulBlocks, multiplies_by_a_turned_matrix) {
  OneNode node("MatMulBlocks", "tessera");
  node.operand("m 64").operand("6 64", kSigned).operand("6 2").set("block_size", int64_t{32}).set("transB", int64_t{1});
  EXPECT_EQ(node.type(), "float32 [m, 6]");
  EXPECT_EQ(node.rule(), "m (k k_in), n (k k_in), n k -> m n | k: sum, k_in: whole");
  OneNode half("MatMulBlocks", "tessera");
  half.operand("m 40").operand("6 40", DType::int4).operand("6").set("transB", int64_t{1});
  EXPECT_EQ(half.rule(), "m (k k_pair), n (k k_pair), n -> m n | k: sum, k_pair: whole");
}

TEST(MatMulBlocks, refuses_scales_along_its_sum) {
  OneNode node("MatMulBlocks", "tessera");
  node.operand("m 40").operand("40 6", kSigned).operand("40");
  EXPECT_THAT(node.error(), HasSubstr("its scales are [40]; without blocks they must be one number, or a list of 6"));
}

TEST(MatMulBlocks, wants_zero_points_for_codes_without_a_sign) {
  OneNode node("MatMulBlocks", "tessera");
  node.operand("m 64").operand("64 6", kByte).operand("2 6").set("block_size", int64_t{32});
  EXPECT_THAT(node.error(), HasSubstr("its uint8 codes need zero points of the same type"));
}

}  // namespace
}  // namespace tessera::ops

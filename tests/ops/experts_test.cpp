#include "tessera/ir/experts.h"

#include <gmock/gmock.h>

#include "ops/one_node.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

/// Eight experts of tokens with 64 elements, without biases.
struct ExpertsNode : OneNode {
  explicit ExpertsNode(std::string_view gate = "8 64 128", DType dtype = DType::float32)
      : OneNode("Experts", kExpertsDomain) {
    operand("t 64", dtype).operand("t 2", DType::int64).operand("t 2", dtype);
    operand(gate, dtype).operand("8 128 64", dtype);
  }
};

TEST(Experts, TakeAFewMatricesForEachToken) {
  ExpertsNode node;
  EXPECT_EQ(node.type(), "float32 [t, 64]");
  EXPECT_EQ(node.rule(), "t i, t c, t c, e i f, e f o -> t o | c: sum, i: whole, f: sum, e: lookup");
  EXPECT_EQ(node.flops(), "65536*t") << "two choices of each token, however many experts there are";
}

TEST(Experts, HaveBiasesAndGates) {
  ExpertsNode node;
  node.operand("8 128").operand("8 64").operand("8 64 128").operand("8 128").set("gated", std::string("apart"));
  EXPECT_EQ(node.rule(),
            "t i, t c, t c, e i f, e f o, e f, e o, e i f, e f -> t o | c: sum, i: whole, f: sum, e: lookup");
  EXPECT_EQ(node.flops(), "98304*t");
}

TEST(Experts, MayHoldBothFactorsInOneMatrix) {
  ExpertsNode halves("8 64 256");
  halves.set("gated", std::string("halves"));
  EXPECT_EQ(halves.rule(),
            "t i, t c, t c, e i (two f), e f o -> t o | c: sum, i: whole, f: sum, e: lookup, two: whole");
  ExpertsNode interleaved("8 64 256");
  interleaved.set("gated", std::string("interleaved"));
  EXPECT_EQ(interleaved.rule(),
            "t i, t c, t c, e i (f two), e f o -> t o | c: sum, i: whole, f: sum, e: lookup, two: whole");
}

TEST(Experts, InPartsGiveZerosForOthersChoices) {
  EXPECT_EQ(ExpertsNode().localized("e", 4),
            "ExpertsShard(A, B, C, D, E, _, _, _, _, [2*@x], [8]) -> float32 [t, 64]\n");
}

TEST(Experts, OfOurOwnSumInFloat32) {
  ExpertsNode node("8 64 128", DType::bfloat16);
  EXPECT_EQ(node.type(), "bfloat16 [t, 64]");
  node.set("accumulate", std::string("float32"));
  EXPECT_EQ(node.type(), "float32 [t, 64]");
}

/// The same of 4-bit codes in blocks of 32: up to the scales of what is given last.
struct CodedExpertsNode : OneNode {
  explicit CodedExpertsNode(std::string_view gate = "8 256 32", std::string_view scales = "8 64 4")
      : OneNode("Experts", kExpertsDomain) {
    operand("t 64").operand("t 2", DType::int64).operand("t 2");
    operand(gate, DType::uint8).operand("8 64 64", DType::uint8);
    for (size_t index = ExpertsOperand::gate_bias; index < ExpertsOperand::gate_scales; ++index) absent();
    operand("8 256 2").operand("8 256 2", DType::uint8).operand(scales);
    set("gated", std::string("interleaved")).set("block_size", int64_t{32});
  }
};

TEST(Experts, OfCodesAreSplitBetweenBlocks) {
  CodedExpertsNode node;
  EXPECT_EQ(node.type(), "float32 [t, 64]");
  EXPECT_EQ(node.rule(),
            "t i, t c, t c, e (f f_in two) 1, e o (f f_bytes), , , , , , , e (f f_in two) 1, e (f f_in two) 1, e o f "
            "-> t o | c: sum, i: whole, f: sum, e: lookup, f_in: whole, two: whole, f_bytes: whole");
  EXPECT_EQ(node.flops(), "98304*t");
  // One scale for each column of the last matrix: its rows are cut between bytes.
  CodedExpertsNode columns("8 256 32", "8 64 1");
  EXPECT_EQ(columns.type(), "float32 [t, 64]");
  EXPECT_THAT(columns.rule(), HasSubstr("e o f, , , , , , , e (f f_in two) 1, e (f f_in two) 1, e o 1 -> t o"));
}

TEST(Experts, OfCodesNameWhatDoesNotFit) {
  EXPECT_THAT(CodedExpertsNode("8 256 48").error(), HasSubstr("the scales or zero points of a column"));
  EXPECT_THAT(CodedExpertsNode("8 256 32", "8 64 3").error(), HasSubstr("the scales or zero points of a column"));
  EXPECT_THAT(CodedExpertsNode().set("gate_bits", int64_t{2}).error(), HasSubstr("codes of 4 and 8 bits"));
  EXPECT_THAT(CodedExpertsNode().set("block_size", int64_t{0}).error(), HasSubstr("its block_size is 0"));
  EXPECT_THAT(CodedExpertsNode().operand("8 64 5", DType::uint8).error(), HasSubstr("zero points"));
  ExpertsNode plain;
  for (size_t index = ExpertsOperand::gate_bias; index < ExpertsOperand::down_scales; ++index) plain.absent();
  EXPECT_THAT(plain.operand("8 64 4").error(), HasSubstr("not a matrix of codes"));
}

TEST(Experts, NameWhatDoesNotFit) {
  EXPECT_THAT(ExpertsNode("7 64 128").error(), HasSubstr("the experts of the first matrix"));
  EXPECT_THAT(ExpertsNode("8 32 128").error(), HasSubstr("the rows of the first matrix"));
  EXPECT_THAT(ExpertsNode("8 64 120").error(), HasSubstr("the hidden elements"));
  EXPECT_THAT(ExpertsNode().set("gated", std::string("apart")).error(), HasSubstr("'up'"));
  EXPECT_THAT(ExpertsNode().set("gated", std::string("thirds")).error(), HasSubstr("'thirds'"));
  EXPECT_THAT(ExpertsNode().set("activation", std::string("tan")).error(), HasSubstr("'tan'"));
  EXPECT_THAT(ExpertsNode("8 64 255").set("gated", std::string("halves")).error(), HasSubstr("255 columns"));
}

}  // namespace
}  // namespace tessera::ops

#include <gmock/gmock.h>

#include "ops/one_node.h"
#include "tessera/ops/library/recurrent_cell.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

TEST(Lstm, SequencesAreIndependent) {
  OneNode node("LSTM");
  node.operand("t n 8").operand("2 64 8").operand("2 64 16").operand("2 128").results(3);
  node.set("direction", std::string("bidirectional"));
  EXPECT_EQ(node.type(0), "float32 [t, 2, n, 16]");
  EXPECT_EQ(node.type(2), "float32 [2, n, 16]");
  EXPECT_EQ(
      node.rule(),
      "1 n 1, 1 (g h) 1, 1 (g h) 1, 1 (biases h) -> t d n h, d n h, d n h | h: units, t: whole, d: whole, g: whole, "
      "biases: whole");
  EXPECT_EQ(node.flops(), "6144*n*t");
}

TEST(Gru, BatchMayComeFirst) {
  OneNode node("GRU");
  node.operand("n t 8").operand("1 48 8").operand("1 48 16").set("layout", int64_t{1}).results(2);
  EXPECT_EQ(node.type(0), "float32 [n, t, 1, 16]");
  EXPECT_EQ(node.type(1), "float32 [n, 1, 16]");
  EXPECT_EQ(node.rule(), "n 1 1, 1 (g h) 1, 1 (g h) 1 -> n t d h, n d h | h: units, t: whole, d: whole, g: whole");
}

TEST(Rnn, WeightsMustFit) {
  OneNode node("RNN");
  node.operand("t n 8").operand("1 16 9").operand("1 16 16");
  EXPECT_THAT(node.error(), HasSubstr("the weights' width (9)"));
}

// Before it is known whether units are split: both forms must refuse the same.
TEST(Rnn, RefusesWhatNoFormComputes) {
  const auto error_of = [](const char* attribute, AttributeValue value) {
    OneNode node("RNN");
    node.operand("t n 8").operand("1 16 8").operand("1 16 16").set(attribute, std::move(value));
    return node.error();
  };
  using Names = std::vector<std::string>;
  EXPECT_THAT(error_of("activations", Names{"LeakyRelu"}), HasSubstr("the activation LeakyRelu is not supported"));
  EXPECT_THAT(error_of("activations", Names{"Tanh", "Tanh"}), HasSubstr("it has 2 activations; 1 are needed"));
  EXPECT_THAT(error_of("direction", std::string("backward")), HasSubstr("its direction is 'backward'"));
  EXPECT_THAT(error_of("clip", 0.0F), HasSubstr("its clip is 0; it must be above 0"));
  EXPECT_EQ(error_of("activations", Names{"Relu"}), "no error");
}

TEST(Lstm, NamesWhichOperandDoesNotFit) {
  const std::vector<const char*> fitting = {"t n 8", "2 64 8", "2 64 16", "2 128", "n", "2 n 16", "2 n 16", "2 48"};
  const auto error_of = [&](size_t which, const char* extents, DType lengths = DType::int32) {
    OneNode node("LSTM");
    for (size_t i = 0; i < fitting.size(); ++i)
      node.operand(i == which ? extents : fitting[i], i == RecurrentCell::kLengths ? lengths : DType::float32);
    node.set("direction", std::string("bidirectional"));
    return node.error();
  };
  EXPECT_EQ(error_of(0, "t n 8"), "no error");
  EXPECT_THAT(error_of(RecurrentCell::kWeights, "1 64 8"), HasSubstr("dimension 0 of the weights (1)"));
  EXPECT_THAT(error_of(RecurrentCell::kRecurrence, "2 48 16"), HasSubstr("dimension 1 of the recurrence (48)"));
  EXPECT_THAT(error_of(RecurrentCell::kBias, "1 128"), HasSubstr("dimension 0 of the bias (1)"));
  EXPECT_THAT(error_of(RecurrentCell::kHidden, "2 n 15"), HasSubstr("dimension 2 of the initial state (15)"));
  EXPECT_THAT(error_of(RecurrentCell::kCell, "1 n 16"), HasSubstr("dimension 0 of the initial cell state (1)"));
  EXPECT_THAT(error_of(RecurrentCell::kPeepholes, "2 64"), HasSubstr("dimension 1 of the peepholes (64)"));
  EXPECT_THAT(error_of(RecurrentCell::kLengths, "n 1"), HasSubstr("the lengths"));
  EXPECT_THAT(error_of(0, "t n 8", DType::int64), HasSubstr("its lengths are int64; they must be int32"));
}

}  // namespace
}  // namespace tessera::ops

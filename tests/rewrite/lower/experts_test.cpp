// com.microsoft's QMoE becomes Experts, whose matrices are its codes as they lie; what it cannot become is named.
#include "tessera/ir/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/base/error.h"
#include "tessera/rewrite/lower/lower.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

using testing::HasSubstr;

/// Four experts of 32 and 64 elements, codes of 4 bits in blocks of 16, interleaved units.
class LowerQMoE : public testing::Test {
 protected:
  LowerQMoE() {
    operands = {input(graph, "x", {"batch", "3", "32"}),
                input(graph, "scores", {"3*batch", "4"}),
                codes({4, 128, 16}),
                state(graph, "s1", {4, 128, 2}),
                nullptr,
                codes({4, 32, 32}),
                state(graph, "s2", {4, 32, 4})};
    attributes = {{"activation_type", std::string("swiglu")},
                  {"swiglu_fusion", int64_t{1}},
                  {"k", int64_t{2}},
                  {"block_size", int64_t{16}}};
    model.opset_imports = {{"", 21}, {"com.microsoft", 1}};
  }

  Value* codes(Dims dims) {
    return graph.add_state("codes" + std::to_string(graph.values().size()),
                           Tensor::zeros(DType::uint8, std::move(dims)));
  }
  void set(size_t operand, Value* value) {
    operands.resize(std::max(operands.size(), operand + 1));
    operands[operand] = value;
  }

  Node* qmoe() {
    Node* made = graph.add_node("QMoE", operands, {""}, "com.microsoft");
    made->attributes = attributes;
    return made;
  }
  /// The Experts node.
  const Node* lowered() {
    graph.outputs = {qmoe()->outputs[0]};
    fold(model);
    graph.verify("test");
    for (const auto& each : graph.nodes())
      if (each->op_type == "Experts") return each.get();
    return nullptr;
  }
  std::string error() {
    try {
      lower_operator(graph, qmoe(), [](Node*) {});
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }

  OnnxModel model;
  Graph& graph = *model.graph;
  std::vector<Value*> operands;
  std::vector<Attribute> attributes;
};

TEST_F(LowerQMoE, keeps_the_layout_of_codes) {
  const Node* experts = lowered();
  ASSERT_NE(experts, nullptr);
  EXPECT_EQ(experts->input(ExpertsOperand::gate), operands[2]);
  EXPECT_EQ(experts->input(ExpertsOperand::down), operands[5]);
  EXPECT_EQ(experts->input(ExpertsOperand::gate_scales), operands[3]);
  EXPECT_EQ(experts->input(ExpertsOperand::down_zeros), nullptr);
  EXPECT_EQ(experts->get_int("block_size", 0), 16);
  EXPECT_EQ(to_string(graph.outputs[0]->shape()), "[batch, 3, 32]");
  EXPECT_EQ(histogram(graph)["Softmax"], 1) << "of what is chosen";
}

TEST_F(LowerQMoE, gives_each_zero_point_a_byte) {
  set(11, codes({4, 128, 1}));
  set(12, codes({4, 32, 2}));
  const Node* experts = lowered();
  ASSERT_NE(experts, nullptr);
  EXPECT_EQ(to_string(experts->input(ExpertsOperand::gate_zeros)->shape()), "[4, 128, 2]");
  EXPECT_EQ(to_string(experts->input(ExpertsOperand::down_zeros)->shape()), "[4, 32, 4]");
}

TEST_F(LowerQMoE, takes_scales_of_whole_columns) {
  attributes.pop_back();
  operands[3] = state(graph, "s3", {4, 128});
  operands[6] = state(graph, "s4", {4, 32});
  set(11, codes({4, 64}));
  const Node* experts = lowered();
  ASSERT_NE(experts, nullptr);
  EXPECT_EQ(to_string(experts->input(ExpertsOperand::gate_scales)->shape()), "[4, 128, 1]");
  EXPECT_EQ(to_string(experts->input(ExpertsOperand::gate_zeros)->shape()), "[4, 128, 1]");
  EXPECT_EQ(experts->get_int("block_size", 0), 2) << "hidden elements may be split between bytes";
}

TEST_F(LowerQMoE, names_what_it_does_not_take) {
  const auto with = [&](Attribute attribute) {
    const size_t before = attributes.size();
    attributes.push_back(std::move(attribute));
    const std::string found = error();
    attributes.resize(before);
    return found;
  };
  EXPECT_THAT(with({"use_sparse_mixer", int64_t{1}}), HasSubstr("use_sparse_mixer"));
  EXPECT_THAT(with({"swiglu_limit_after_activation", int64_t{1}}), HasSubstr("swiglu_limit_after_activation"));
  EXPECT_THAT(with({"quant_type", std::string("fp4")}), HasSubstr("'fp4'"));
  EXPECT_THAT(with({"weights_prepacked", int64_t{1}}), HasSubstr("weights_prepacked"));
  EXPECT_THAT(with({"expert_weight_bits", int64_t{2}}), HasSubstr("2 bits"));
  set(15, state(graph, "scale", {4}));
  EXPECT_THAT(error(), HasSubstr("operand 15"));
  operands.resize(7);
  operands[6] = nullptr;
  EXPECT_THAT(error(), HasSubstr("fc2 has no scales"));
}

}  // namespace
}  // namespace tessera::rewrite

// Operators between codes become the operators of floats between DequantizeLinear and QuantizeLinear, and products of
// integers where there are some.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

using testing::HasSubstr;
using Counts = std::map<std::string, int>;

// A model with one scale and zero point, s and z, and perhaps a list of them, t and u; codes are a, b and the weight w.
OnnxModel codes_model(const std::string& node, const std::string& result = "uint8[2, 4, 6, 6] y") {
  return parse_text(
      "<ir_version: 10, opset_import: [\"\": 21, \"com.microsoft\": 1]> m (uint8[2, 4, 6, 6] a, uint8[2, 4, 6, 6] b, "
      "uint8[3, 4] x, int8[5, 4] w, int32[5] c, float s, uint8 z, float[1] old_s, uint8[1] old_z, float[5] t, int8[5] "
      "u, bool[6] k) => (" +
      result + ") { y = com.microsoft." + node + " }");
}

Counts codes_lowered(const std::string& node, const std::string& result = "uint8[2, 4, 6, 6] y") {
  OnnxModel model = codes_model(node, result);
  fold(model);
  raise_quantized(model);
  model.graph->verify("test");
  EXPECT_EQ(model.graph->outputs[0]->dtype(), result[0] == 'f' ? DType::float32 : DType::uint8) << node;
  return histogram(*model.graph);
}

Counts between_codes(const std::string& type, int operands = 1) {
  return {{"DequantizeLinear", operands}, {type, 1}, {"QuantizeLinear", 1}};
}

TEST(QLinear, operators_of_two_compute_floats) {
  for (const std::string type : {"Add", "Mul"})
    EXPECT_EQ(codes_lowered("QLinear" + type + " (a, s, z, b, s, z, s, z)"), between_codes(type, 2));
}

TEST(QLinear, where_chooses_between_floats) {
  EXPECT_EQ(codes_lowered("QLinearWhere (k, a, s, z, b, s, z, s, z)"), between_codes("Where", 2));
}

TEST(QLinear, operators_of_one_compute_floats) {
  EXPECT_EQ(codes_lowered("QLinearSigmoid (a, s, z, s, z)"), between_codes("Sigmoid"));
  EXPECT_EQ(codes_lowered("QLinearLeakyRelu <alpha = 0.5> (a, s, z, s, z)"), between_codes("LeakyRelu"));
  EXPECT_EQ(codes_lowered("QLinearSoftmax <axis = -1, opset = 13> (a, s, z, s, z)"), between_codes("Softmax"));
  EXPECT_EQ(codes_lowered("QLinearAveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a, s, z, s, z)"),
            between_codes("AveragePool"));
  EXPECT_EQ(codes_lowered("QLinearGlobalAveragePool (a, s, z, s, z)", "uint8[2, 4, 1, 1] y"),
            between_codes("GlobalAveragePool"));
}

TEST(QLinear, attributes_go_along) {
  OnnxModel model = codes_model("QLinearLeakyRelu <alpha = 0.5> (a, s, z, s, z)");
  fold(model);
  const Node* leaky = model.graph->outputs[0]->producer->input(0)->producer;
  EXPECT_EQ(leaky->op_type, "LeakyRelu");
  EXPECT_EQ(leaky->get_float("alpha", 0), 0.5f);
}

TEST(QLinear, zero_points_may_be_left_out) {
  EXPECT_EQ(codes_lowered("QLinearAdd (a, s, \"\", b, s, \"\", s)"), between_codes("Add", 2));
}

TEST(QLinear, a_list_of_one_scale_counts_as_one) {
  Counts counts = codes_lowered("QLinearMul (a, old_s, old_z, b, s, z, old_s, old_z)");
  counts.erase("Reshape");
  EXPECT_EQ(counts, between_codes("Mul", 2));
}

TEST(QLinear, concat_has_the_scale_of_its_result_first) {
  EXPECT_EQ(codes_lowered("QLinearConcat <axis = 1> (s, z, a, s, z, b, s, z)", "uint8[2, 8, 6, 6] y"),
            between_codes("Concat", 2));
}

TEST(QLinear, gemm_becomes_a_product_of_integers) {
  const Counts codes = codes_lowered("QGemm <transB = 1> (x, s, z, w, t, u, c, s, z)", "uint8[3, 5] y");
  EXPECT_EQ(codes.at("MatMulInteger"), 1);
  EXPECT_EQ(codes.at("QuantizeLinear"), 1);
  EXPECT_FALSE(codes.contains("Gemm"));
  const Counts floats = codes_lowered("QGemm <transB = 1> (x, s, z, w, t, u)", "float[3, 5] y");
  EXPECT_EQ(floats.at("MatMulInteger"), 1);
  EXPECT_FALSE(floats.contains("QuantizeLinear"));
}

// Its list's codes have the scale of alpha times the products.
TEST(QLinear, gemm_scales_its_list_by_alpha) {
  const auto multiplied = [](const std::string& alpha) {
    OnnxModel model = codes_model("QGemm <transB = 1" + alpha + "> (x, s, z, w, t, u, c)", "float[3, 5] y");
    fold(model);
    return histogram(*model.graph)["Mul"];
  };
  EXPECT_EQ(multiplied(", alpha = 0.5"), multiplied("") + 1);
}

TEST(QLinear, softmax_of_older_opsets_may_have_dimensions_of_one_behind) {
  OnnxModel model = parse_text(R"(<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
    m (uint8[2, 9, 1, 1] a, float s, uint8 z) => (uint8[2, 9, 1, 1] y) {
      y = com.microsoft.QLinearSoftmax <axis = 1, opset = 11> (a, s, z, s, z)
    })");
  fold(model);
  EXPECT_EQ(histogram(*model.graph), between_codes("Softmax"));
}

// ONNX Runtime computes sums in float32, too; those of 16 bits would be infinite.
TEST(FusedIntegers, of_sixteen_bits_are_scaled_in_float32) {
  const auto lowered = [](const std::string& scale) {
    OnnxModel model = parse_text(R"(<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
      m (uint8[4, 64] a, int8[64, 4] b, float16)" +
                                 scale + R"( s, float16[4] t, float16[4] bias) => (float16[4, 4] y) {
        y = com.microsoft.MatMulIntegerToFloat (a, b, s, t, "", "", bias)
      })");
    fold(model);
    for (const auto& node : model.graph->nodes())
      EXPECT_TRUE(!node->is("Mul") || node->outputs[0]->dtype() == DType::float32);
    EXPECT_EQ(model.graph->outputs[0]->dtype(), DType::float16);
  };
  lowered("");
  lowered("[1]");
  EXPECT_THROW(lowered("[4]"), Error) << "a scale for each row";
}

TEST(QLinear, refuses_what_it_does_not_compute) {
  const auto error = [](const std::string& node) -> std::string {
    try {
      OnnxModel model = codes_model(node);
      fold(model);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      return error.what();
    }
    return "taken";
  };
  EXPECT_THAT(error("QLinearAveragePool <kernel_shape = [2, 2], channels_last = 1> (a, s, z, s, z)"),
              HasSubstr("its channels come last"));
  EXPECT_THAT(error("QLinearSoftmax <axis = 1, opset = 11> (a, s, z, s, z)"), HasSubstr("opset 13"));
  EXPECT_THAT(error("QLinearSigmoid (a, s, z)"), HasSubstr("operand 3, the scale of its result"));
  EXPECT_THAT(error("QLinearAdd (a, \"\", z, b, s, z, s, z)"), HasSubstr("its operand 1 is missing"));
}

}  // namespace
}  // namespace tessera::rewrite

// Every operator that is lowered takes what it should, and refuses the rest with an error that names it.
#include "tessera/rewrite/lower/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/rewrite/lower/functions.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

/// An operator that rewriting replaces, and how many operands it needs.
struct Lowered {
  std::string_view op_type, domain;
  size_t operands;
};

std::vector<Lowered> all_lowered() {
  std::vector<Lowered> all;
  for (const Lowering* lowering : all_lowerings())
    all.push_back({lowering->op_type, lowering->domain, lowering->operands});
  for (const Function& function : known_functions())
    all.push_back({function.name, function.domain, function.body->inputs.size()});
  return all;
}

/// Nodes of one operator with operands, attributes and numbers of results that are drawn at random.
class RandomNodes {
 public:
  RandomNodes(const Lowered& lowered, uint64_t seed) : lowered_(lowered), random_(seed) {}

  OnnxModel next() {
    OnnxModel model;
    Graph& graph = *model.graph;
    const size_t count = draw(lowered_.operands > 1 ? lowered_.operands + 2 : 6);
    std::vector<Value*> operands;
    for (size_t i = 0; i < count; ++i) operands.push_back(draw(8) == 0 ? nullptr : operand(graph, i));
    std::vector<std::string> results;
    for (size_t i = 0; i <= draw(4); ++i) results.push_back("y" + std::to_string(i));
    Node* node = graph.add_node(lowered_.op_type, operands, results, lowered_.domain);
    for (const char* name : {"axis",
                             "num_heads",
                             "q_num_heads",
                             "kv_num_heads",
                             "blocksize",
                             "size",
                             "group",
                             "onesided",
                             "inverse",
                             "is_causal",
                             "unidirectional",
                             "left_window_size",
                             "qk_matmul_output_mode",
                             "batch_axis",
                             "time_axis",
                             "transA",
                             "do_rotary",
                             "gather_axis",
                             "quantize_axis",
                             "bits",
                             "block_size",
                             "keepdims",
                             "clip"})
      if (draw(2)) node->set(name, static_cast<int64_t>(draw(5)) - 1);
    for (const char* name : {"strides", "dilations", "pads", "kernel_shape", "axes", "qkv_hidden_sizes"})
      if (draw(3) == 0) node->set(name, numbers());
    for (const auto& [name, words] : std::map<std::string, std::vector<std::string>>{
             {"mode", {"CRD", "circular", "other"}},
             {"keep_aspect_ratio_policy", {"not_larger", "not_smaller", "other"}},
             {"update_rule", {"linear", "gated", "delta", "other"}},
             {"activation", {"silu", "Relu", "Clip", "LeakyRelu", "other"}}})
      if (draw(2)) node->set(name, words[draw(words.size())]);
    for (Value* result : node->outputs) graph.outputs.push_back(result);
    model.opset_imports[""] = 28;
    return model;
  }

 private:
  size_t draw(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }

  std::vector<int64_t> numbers() {
    std::vector<int64_t> all(draw(6));
    for (int64_t& number : all) number = static_cast<int64_t>(draw(6)) - 1;
    return all;
  }

  // An operand of any small shape; sometimes its elements are known.
  Value* operand(Graph& graph, size_t index) {
    const std::string name = "x" + std::to_string(index);
    if (draw(4) == 0) {
      const std::vector<int64_t> elements = numbers();
      return graph.add_constant(name,
                                Tensor::of<int64_t>(DType::int64, {static_cast<int64_t>(elements.size())}, elements));
    }
    Shape shape;
    const size_t rank = draw(6);
    for (size_t d = 0; d < rank; ++d) {
      constexpr int64_t kExtents[] = {1, 2, 4, 8, 0, 3};
      shape.push_back(draw(8) == 0 ? Expr::symbol("n") : Expr(kExtents[draw(6)]));
    }
    constexpr DType kTypes[] = {DType::float32, DType::float32, DType::int64,
                                DType::uint8,   DType::boolean, DType::int32};
    return graph.add_input(name, {kTypes[draw(6)], shape});
  }

  const Lowered& lowered_;
  std::mt19937_64 random_;
};

TEST(Lowerings, refuse_what_they_do_not_take) {
  constexpr uint64_t kSeed = 20261124;
  constexpr int kNodes = 2000;
  RecordProperty("seed", std::to_string(kSeed));
  for (const Lowered& lowered : all_lowered()) {
    RandomNodes nodes(lowered, kSeed);
    int taken = 0;
    for (int i = 0; i < kNodes; ++i) {
      OnnxModel model = nodes.next();
      try {
        inline_functions(model);
        fold(model);
        ++taken;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::user) << lowered.op_type << " " << i << ": " << error.what();
      } catch (const std::exception& error) {
        ADD_FAILURE() << lowered.op_type << ", node " << i << " of seed " << kSeed << ": " << error.what();
      }
    }
    EXPECT_LT(taken, kNodes) << lowered.op_type << " takes everything";
  }
}

/// The operators of the nodes that a node becomes, in order.
std::vector<std::string> operators_of(const std::string& text) {
  OnnxModel model = parse_text("<ir_version: 10, opset_import: [\"\": 21, \"com.microsoft\": 1]> " + text);
  inline_functions(model);
  upgrade(model);
  fold(model);
  std::vector<std::string> types;
  for (const auto& node : model.graph->nodes()) types.push_back(node->op_type);
  return types;
}

// Functions that the build holds as ONNX text: the form of each follows from its operands and attributes, and what
// nobody reads is not there.
TEST(Lowerings, take_known_functions_apart) {
  using testing::ElementsAre;
  const auto skip = [](const std::string& type, const std::string& operands, const std::string& results = "y") {
    return operators_of("m (float[2, 3, 8] x, float[2, 3, 8] s, float[8] g, float[8] b, float[8] c) => (" + results +
                        ") { " + results + " = com.microsoft." + type + " (" + operands + ") }");
  };
  EXPECT_THAT(skip("SkipLayerNormalization", "x, s, g"), ElementsAre("Add", "LayerNormalization"));
  EXPECT_THAT(skip("SkipLayerNormalization", "x, s, g, b, c"), ElementsAre("Add", "Add", "LayerNormalization"));
  EXPECT_THAT(skip("SkipLayerNormalization", "x, s, g, \"\", c"), ElementsAre("Add", "Add", "LayerNormalization"));
  EXPECT_THAT(skip("SkipSimplifiedLayerNormalization", "x, s, g, c"), ElementsAre("Add", "Add", "RMSNormalization"));
  EXPECT_THAT(skip("FastGelu", "x"), ElementsAre("Gelu"));
  EXPECT_THAT(skip("FastGelu", "x, c"), ElementsAre("Add", "Gelu"));
  EXPECT_THAT(skip("BiasGelu", "x, c"), ElementsAre("Add", "Gelu"));
  // Absent operands and results may be listed.
  EXPECT_THAT(skip("FastGelu", "x, \"\""), ElementsAre("Gelu"));
  EXPECT_THAT(skip("SkipLayerNormalization", "x, s, g, b, \"\""), ElementsAre("Add", "LayerNormalization"));
  EXPECT_THAT(operators_of("m (float[2, 8] x, float[8] g) => (y) { y, \"\" = SimplifiedLayerNormalization (x, g) }"),
              ElementsAre("RMSNormalization"));
  EXPECT_THAT(operators_of("m (float[2, 8] a, float[2, 8] b) => (y) { y = SwiGLU <alpha = 0.5> (a, b) }"),
              ElementsAre("Swish", "Mul"));
  EXPECT_THAT(operators_of("m (float[n, 8] x) => (y) <int64[1] s = {4}> { y = CenterCropPad <axes = [-1]> (x, s) }"),
              ElementsAre("Slice", "Pad"));
  EXPECT_THAT(operators_of("m (float[n, 2, 3] t) => (y) <int64[4] s = {1, 1, 2, 3}> { y = AffineGrid (t, s) }"),
              testing::Not(testing::Contains("Slice")))
      << "shapes are known";
}

TEST(Lowerings, errors_of_known_functions_name_the_call) {
  const auto message = [](const std::string& call) -> std::string {
    try {
      operators_of("m (float[2, 8] x, int64[1] s) => (y) { y = " + call + " }");
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  using testing::HasSubstr;
  EXPECT_THAT(message("com.microsoft.BiasGelu (x)"),
              HasSubstr("com.microsoft.BiasGelu producing 'y': its operand 1 ('b') is missing"));
  EXPECT_THAT(message("CenterCropPad <axes = [0]> (x)"),
              HasSubstr("CenterCropPad producing 'y': its operand 1 ('shape') is missing"));
  EXPECT_THAT(message("com.microsoft.SkipLayerNormalization (x, x)"), HasSubstr("its operand 2 ('gamma') is missing"));
  EXPECT_THAT(message("com.microsoft.BiasGelu (x, s)"),
              HasSubstr("com.microsoft.BiasGelu 'y': in its function, Add producing 'y/sum': "));
  // The call of the model, not that within another function.
  EXPECT_THAT(message("com.microsoft.SkipLayerNormalization (x, x, x, x, s)"),
              HasSubstr("com.microsoft.SkipLayerNormalization 'y': in its function, Add producing "));
}

TEST(Lowerings, functions_of_the_model_override_known_ones) {
  OnnxModel model = parse_text(R"(<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
    m (float[2, 8] x) => (float[2, 8] y) { y = com.microsoft.FastGelu (x) }
    <domain: "com.microsoft", opset_import: ["": 21]> FastGelu (x) => (y) { y = Relu (x) })");
  inline_functions(model);
  ASSERT_EQ(model.graph->nodes().size(), 1u);
  EXPECT_EQ(model.graph->nodes()[0]->op_type, "Relu");
  // One of the same name for other calls does not.
  OnnxModel beside = parse_text(R"(<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
    m (float[2, 8] x) => (float[2, 8] y) { a = com.microsoft.FastGelu:bias (x) y = com.microsoft.FastGelu (a, a) }
    <domain: "com.microsoft", overload: "bias", opset_import: ["": 21]> FastGelu (x) => (y) { y = Relu (x) })");
  inline_functions(beside);
  std::vector<std::string> types;
  for (const auto& node : beside.graph->nodes()) types.push_back(node->op_type);
  EXPECT_THAT(types, testing::ElementsAre("Relu", "Add", "Gelu"));
}

TEST(Lowerings, take_fused_products_apart) {
  using testing::ElementsAre, testing::UnorderedElementsAre;
  const std::string image = "float[1, 2, 4, 4] x, float[3, 2, 3, 3] w, float[3] b";
  EXPECT_THAT(operators_of("m (" + image +
                           ", float[1, 3, 2, 2] z) => (float[1, 3, 2, 2] y) { y = com.microsoft.FusedConv "
                           "<activation = \"Clip\", activation_params = [-1.0, 1.0]> (x, w, b, z) }"),
              ElementsAre("Conv", "Add", "Clip"));
  EXPECT_THAT(operators_of("m (" + image + ") => (float[1, 3, 2, 2] y) { y = com.microsoft.FusedConv (x, w, b) }"),
              ElementsAre("Conv"));
  EXPECT_THAT(operators_of("m (float[2, 3] a, float[3, 4] b) => (float[2, 4] y) { y = com.microsoft.FusedGemm "
                           "<activation = \"LeakyRelu\", activation_alpha = 0.5> (a, b) }"),
              ElementsAre("Gemm", "LeakyRelu"));
  EXPECT_THAT(operators_of("m (uint8[2, 3] a, int8[3, 4] b, float s, float[4] t, float[4] c) => (float[2, 4] y) { y = "
                           "com.microsoft.MatMulIntegerToFloat (a, b, s, t, \"\", \"\", c) }"),
              UnorderedElementsAre("MatMulInteger", "Cast", "Mul", "Mul", "Add"));
}

/// How often each operator is among the nodes that a node becomes.
std::map<std::string, int> counts_of(const std::string& text) {
  std::map<std::string, int> counts;
  for (const std::string& type : operators_of(text)) ++counts[type];
  return counts;
}

// What ONNX Runtime's dynamic and 4-bit quantizers write.
TEST(Lowerings, take_quantized_operators_apart) {
  auto counts = counts_of(
      "m (uint8[2, 5, 8] x, int8[8, 24] w, float[24] b, float s, float[24] t, uint8 z, int8[24] u) => (float[2, 5, 8] "
      "y) "
      "{ y = com.microsoft.QAttention <num_heads = 2> (x, w, b, s, t, \"\", z, u) }");
  EXPECT_EQ(counts["MatMulInteger"], 1);
  EXPECT_EQ(counts["Attention"], 1);
  EXPECT_EQ(counts["MatMul"], 0);
  counts = counts_of(
      "m (int32[2, 5] ids, uint8[9, 8] words, uint8[6, 8] places, uint8[8] gamma, uint8[8] beta, float s, uint8 z) => "
      "(float[2, 5, 8] y) { y = com.microsoft.QEmbedLayerNormalization (ids, \"\", words, places, \"\", gamma, beta, "
      "\"\", s, s, \"\", s, s, z, z, \"\", z, z) }");
  EXPECT_EQ(counts["Gather"], 2) << "of codes: tables are not dequantized as a whole";
  EXPECT_EQ(counts["DequantizeLinear"], 4);
  EXPECT_EQ(counts["LayerNormalization"], 1);
  counts = counts_of(
      "m (int4[9, 32] table, int64[2, 3] rows, float[9, 2] scales) => (float[2, 3, 32] y) { y = "
      "com.microsoft.GatherBlockQuantized <block_size = 16> (table, rows, scales) }");
  EXPECT_EQ(counts, (std::map<std::string, int>{{"Gather", 2}, {"DequantizeLinear", 1}}));
  counts = counts_of(
      "m (uint4[9, 48] table, int64[2, 3] rows, float[9, 3] scales, uint4[9, 3] zeros) => (float[2, 3, 48] y) { y = "
      "com.microsoft.GatherBlockQuantized <block_size = 16> (table, rows, scales, zeros) }");
  EXPECT_EQ(counts, (std::map<std::string, int>{{"Gather", 3}, {"DequantizeLinear", 1}, {"Cast", 2}}))
      << "zero points of rows share bytes";
  counts = counts_of(
      "m (float[t, 1, 6] x, int8[2, 6, 20] w, int8[2, 5, 20] r, float[2] s, int8[2] z) => (float[t, 2, 1, 5] y) { y = "
      "com.microsoft.DynamicQuantizeLSTM <hidden_size = 5, direction = \"bidirectional\"> (x, w, r, \"\", \"\", \"\", "
      "\"\", \"\", s, z, s, z) }");
  EXPECT_EQ(counts["MatMulInteger"], 4) << "of the inputs, and of the state, in each direction";
  EXPECT_EQ(counts["Stack"], 2);
  counts = counts_of(
      "m (float[2, 8] x, uint8[12] b, float[2] f) => (float[2, 3] y) { y = com.microsoft.MatMulBnb4 <K = 8, N = 3, "
      "block_size = 16, quant_type = 1> (x, b, f) }");
  EXPECT_EQ(counts["Gather"], 1) << "of the numbers that codes stand for";
  EXPECT_EQ(counts["Expand"], 1) << "the last block is half full";
  EXPECT_EQ(counts["MatMul"], 1);
}

TEST(Lowerings, name_what_they_do_not_take_of_quantized_operators) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      operators_of(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      return error.what();
    }
    return "";
  };
  const std::string table =
      "m (uint8[9, 32] table, int64[3] rows, float[9, 2] scales, float[1, 2] one) => (float[3, 32] y) "
      "{ y = com.microsoft.GatherBlockQuantized ";
  EXPECT_THAT(message(table + "<bits = 3> (table, rows, scales) }"), testing::HasSubstr("have 2, 4 or 8"));
  EXPECT_THAT(message(table + "<quantize_axis = 0> (table, rows, scales) }"), testing::HasSubstr("must differ"));
  EXPECT_THAT(message(table + "<bits = 8, block_size = 8> (table, rows, scales) }"), testing::HasSubstr("blocks of 8"));
  EXPECT_THAT(message(table + "<bits = 8, block_size = 16> (table, rows, one) }"),
              testing::HasSubstr("each block of each row"));
  EXPECT_THAT(
      message("m (float[t, 1, 6] x, int8[1, 6, 20] w, int8[1, 5, 20] r, float[1] s) => (float[t, 1, 1, 5] y) { y = "
              "com.microsoft.DynamicQuantizeLSTM <hidden_size = 5, activations = [\"sigmoid\", \"Affine\", \"Tanh\"]> "
              "(x, w, r, \"\", \"\", \"\", \"\", \"\", s, \"\", s) }"),
      testing::HasSubstr("the activation Affine is not supported"));
  const std::string product = "m (float[2, 8] x, uint8[11] b, float[2] f) => (float[2, 3] y) { y = ";
  EXPECT_THAT(message(product + "com.microsoft.MatMulBnb4 <K = 8, N = 3, block_size = 16> (x, b, f) }"),
              testing::HasSubstr("its B is [11]; for N = 3 and K = 8 it must have 12 elements"));
  EXPECT_THAT(message(product + "com.microsoft.MatMulBnb4 <K = 8, N = 3, block_size = 16, transB = 0> (x, b, f) }"),
              testing::HasSubstr("its transB is 0"));
  EXPECT_THAT(
      message("m (float[t, 2, 6] x, int8[1, 6, 20] w, int8[1, 5, 20] r, float[1] s, int32[3] n) => (float[t, 1, 2, 5] "
              "y) { y = com.microsoft.DynamicQuantizeLSTM <hidden_size = 5> (x, w, r, \"\", n, \"\", \"\", \"\", s, "
              "\"\", s) }"),
      testing::HasSubstr("operand sequence_lens is [3]; it must be [2]"));
  EXPECT_THAT(
      message("m (float[t, 2, 6] x, int8[1, 6, 20] w, int8[1, 5, 20] r, float[1] s, float[1, 5] p) => (float[t, 1, 2, "
              "5] y) { y = com.microsoft.DynamicQuantizeLSTM <hidden_size = 5> (x, w, r, \"\", \"\", \"\", \"\", p, "
              "s, \"\", s) }"),
      testing::HasSubstr("operand P is [1, 5]; it must be [1, 15]"));
}

}  // namespace
}  // namespace tessera::rewrite

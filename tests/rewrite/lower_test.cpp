// Every operator that is lowered takes what it should, and refuses the rest with an error that names it.
#include "tessera/rewrite/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

/// Nodes of one operator with operands, attributes and numbers of results that are drawn at random.
class RandomNodes {
 public:
  RandomNodes(const Lowering& lowering, uint64_t seed) : lowering_(lowering), random_(seed) {}

  OnnxModel next() {
    OnnxModel model;
    Graph& graph = *model.graph;
    const size_t count = draw(lowering_.operands > 1 ? lowering_.operands + 2 : 6);
    std::vector<Value*> operands;
    for (size_t i = 0; i < count; ++i) operands.push_back(draw(8) == 0 ? nullptr : operand(graph, i));
    std::vector<std::string> results;
    for (size_t i = 0; i <= draw(4); ++i) results.push_back("y" + std::to_string(i));
    Node* node = graph.add_node(lowering_.op_type, operands, results, lowering_.domain);
    for (const char* name : {"axis", "num_heads", "q_num_heads", "kv_num_heads", "blocksize", "size", "group",
                             "onesided", "inverse", "is_causal", "unidirectional", "left_window_size",
                             "qk_matmul_output_mode", "batch_axis", "time_axis", "transA", "do_rotary"})
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

  // Of any small shape; sometimes its elements are known.
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

  const Lowering& lowering_;
  std::mt19937_64 random_;
};

TEST(Lowerings, refuse_what_they_do_not_take) {
  constexpr uint64_t kSeed = 20261124;
  constexpr int kNodes = 2000;
  RecordProperty("seed", std::to_string(kSeed));
  for (const Lowering* lowering : all_lowerings()) {
    RandomNodes nodes(*lowering, kSeed);
    int taken = 0;
    for (int i = 0; i < kNodes; ++i) {
      OnnxModel model = nodes.next();
      try {
        fold(model);
        ++taken;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::user) << lowering->op_type << " " << i << ": " << error.what();
      } catch (const std::exception& error) {
        ADD_FAILURE() << lowering->op_type << ", node " << i << " of seed " << kSeed << ": " << error.what();
      }
    }
    EXPECT_LT(taken, kNodes) << lowering->op_type << " takes everything";
  }
}

/// The operators of the nodes that a node becomes, in order.
std::vector<std::string> operators_of(const std::string& text) {
  OnnxModel model = parse_text("<ir_version: 10, opset_import: [\"\": 21, \"com.microsoft\": 1]> " + text);
  fold(model);
  std::vector<std::string> types;
  for (const auto& node : model.graph->nodes()) types.push_back(node->op_type);
  return types;
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

}  // namespace
}  // namespace tessera::rewrite

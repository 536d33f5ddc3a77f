#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "rewrite/build.h"
#include "tessera/onnx/import.h"
#include "tessera/rewrite/pipeline.h"

// The operators that remain of whole models: few, and the right ones.
namespace tessera::rewrite {
namespace {

using Histogram = std::map<std::string, int>;
namespace fs = std::filesystem;

fs::path model_path(std::string_view name) {
  fs::path folder = name == "tiny" ? fs::path(TESSERA_EXAMPLES) : fs::path(TESSERA_TEST_DATA) / "models";
  return folder / name / "model.onnx";
}

OnnxModel rewritten(OnnxModel model) {
  std::vector<std::string> inputs, outputs;
  for (const Value* value : model.graph->inputs) inputs.push_back(value->name);
  for (const Value* value : model.graph->outputs) outputs.push_back(value->name);
  rewrite_model(model);
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(model.graph->inputs.at(i)->name, inputs[i]);
  for (size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(model.graph->outputs.at(i)->name, outputs[i]);
  for (const auto& value : model.graph->values()) {
    EXPECT_TRUE(value->has_shape()) << value->name;
    EXPECT_NE(value->dtype(), DType::undefined) << value->name;
  }
  return model;
}

OnnxModel rewritten(std::string_view name) {
  return rewritten(import_model(model_path(name)));
}

/// All Attention nodes have this is_causal, and that many operands.
void expect_attention(const OnnxModel& model, int64_t causal, size_t operands) {
  for (const auto& node : model.graph->nodes())
    if (node->is("Attention")) {
      EXPECT_EQ(node->get_int("is_causal", 0), causal) << node->label();
      size_t present = 0;
      for (const Value* operand : node->inputs) present += operand != nullptr;
      EXPECT_EQ(present, operands) << node->label();
    }
}

TEST(Models, tiny_is_six_causal_layers_with_grouped_heads) {
  OnnxModel model = rewritten("tiny");
  EXPECT_EQ(histogram(*model.graph), (Histogram{{"Add", 12},
                                                {"Attention", 6},
                                                {"Cast", 1},
                                                {"Cos", 1},
                                                {"Gather", 1},
                                                {"MatMul", 43},
                                                {"Mul", 7},
                                                {"RMSNormalization", 13},
                                                {"Range", 1},
                                                {"Reshape", 25},
                                                {"RotaryEmbedding", 12},
                                                {"Sin", 1},
                                                {"Swish", 6},
                                                {"Transpose", 24}}));
  expect_attention(model, 1, 3);
  for (const auto& node : model.graph->nodes())
    if (node->is("Attention")) {
      EXPECT_EQ(to_string(node->inputs[1]->shape()), "[batch, 3, sequence, 32]");
    }
}

TEST(Models, gpt2_is_three_causal_layers_like_tinys) {
  OnnxModel model = rewritten("gpt2");
  EXPECT_EQ(histogram(*model.graph), (Histogram{{"Add", 7},
                                                {"Attention", 3},
                                                {"Gather", 2},
                                                {"Gelu", 3},
                                                {"LayerNormalization", 7},
                                                {"MatMul", 13},
                                                {"Range", 1},
                                                {"Reshape", 13},
                                                {"Split", 3},
                                                {"Transpose", 13}}));
  expect_attention(model, 1, 3);
}

TEST(Models, default_attention_is_raised_like_the_eager_one) {
  // transformers' defaults, by torch.onnx.export(dynamo=False), with a mask of the text.
  OnnxModel model = rewritten("gpt2-sdpa");
  EXPECT_EQ(histogram(*model.graph), (Histogram{{"Add", 13},
                                                {"And", 1},
                                                {"Attention", 2},
                                                {"Cast", 1},
                                                {"Gather", 2},
                                                {"Gelu", 2},
                                                {"LayerNormalization", 5},
                                                {"LessOrEqual", 1},
                                                {"MatMul", 9},
                                                {"Range", 1},
                                                {"Reshape", 12},
                                                {"Split", 2},
                                                {"Transpose", 8},
                                                {"Where", 1}}));
  expect_attention(model, 0, 4);
}

TEST(Models, cached_keys_join_the_new_ones_and_are_not_repeated) {
  // The same model from torch.onnx.export(dynamo=True), with a cache of keys and values.
  OnnxModel model = rewritten("llama-cache");
  EXPECT_EQ(histogram(*model.graph), (Histogram{{"Add", 4},
                                                {"Attention", 2},
                                                {"Cast", 1},
                                                {"Concat", 4},
                                                {"Cos", 1},
                                                {"Gather", 1},
                                                {"LessOrEqual", 1},
                                                {"MatMul", 15},
                                                {"Mul", 3},
                                                {"RMSNormalization", 5},
                                                {"Range", 2},
                                                {"Reshape", 11},
                                                {"RotaryEmbedding", 4},
                                                {"Sin", 1},
                                                {"Swish", 2},
                                                {"Transpose", 8},
                                                {"Where", 1}}));
  expect_attention(model, 0, 4);
  for (const auto& node : model.graph->nodes())
    if (node->is("Attention")) {
      EXPECT_EQ(node->inputs[1]->producer->op_type, "Concat");
      EXPECT_EQ(to_string(node->inputs[1]->shape()), "[batch, 2, past + sequence, 8]");
    }
}

TEST(Models, llama_keeps_its_mask_as_the_padding_and_the_order) {
  OnnxModel model = rewritten("llama");
  EXPECT_EQ(histogram(*model.graph), (Histogram{{"Add", 4},
                                                {"And", 1},
                                                {"Attention", 2},
                                                {"Cast", 2},
                                                {"Cos", 1},
                                                {"Gather", 1},
                                                {"LessOrEqual", 1},
                                                {"MatMul", 15},
                                                {"Mul", 3},
                                                {"RMSNormalization", 5},
                                                {"Range", 1},
                                                {"Reshape", 12},
                                                {"RotaryEmbedding", 4},
                                                {"Sin", 1},
                                                {"Swish", 2},
                                                {"Transpose", 8}}));
  expect_attention(model, 0, 4);
}

TEST(Models, bert_has_one_padding_mask_for_all_layers) {
  OnnxModel model = rewritten("bert");
  EXPECT_EQ(histogram(*model.graph), (Histogram{{"Add", 27},
                                                {"Attention", 3},
                                                {"Cast", 1},
                                                {"Gather", 4},
                                                {"Gelu", 3},
                                                {"Gemm", 1},
                                                {"LayerNormalization", 7},
                                                {"MatMul", 18},
                                                {"Range", 1},
                                                {"Reshape", 14},
                                                {"Tanh", 1},
                                                {"Transpose", 12},
                                                {"Where", 1}}));
  expect_attention(model, 0, 4);
  EXPECT_EQ(to_string(model.graph->outputs[0]->shape()), "[batch, sequence, 96]");
}

TEST(Models, vit_loses_its_mask_of_zeros) {
  OnnxModel model = rewritten("vit");
  EXPECT_EQ(histogram(*model.graph), (Histogram{{"Add", 25},
                                                {"Attention", 3},
                                                {"Concat", 1},
                                                {"Conv", 1},
                                                {"Expand", 1},
                                                {"Gather", 1},
                                                {"Gelu", 3},
                                                {"Gemm", 1},
                                                {"LayerNormalization", 7},
                                                {"MatMul", 18},
                                                {"Reshape", 13},
                                                {"Transpose", 13}}));
  expect_attention(model, 0, 3);
}

TEST(Models, minilm_is_six_layers_like_berts) {
  // The weights are not here: a sparse file of zeros stands for them.
  fs::path folder = fs::path(testing::TempDir()) / "rewrite_minilm";
  fs::create_directories(folder);
  fs::copy_file(model_path("minilm"), folder / "model.onnx", fs::copy_options::overwrite_existing);
  std::ofstream(folder / "model.onnx.data").put('\0');
  fs::resize_file(folder / "model.onnx.data", 90855424);
  OnnxModel model = import_model(folder / "model.onnx");
  std::vector<int64_t> positions(512);
  std::iota(positions.begin(), positions.end(), 0);
  model.graph->find("m.embeddings.position_ids")->data = Tensor::of(DType::int64, {1, 512}, positions);
  model = rewritten(std::move(model));
  fs::remove_all(folder);
  EXPECT_EQ(histogram(*model.graph), (Histogram{{"Add", 50},
                                                {"Attention", 6},
                                                {"Cast", 1},
                                                {"Gather", 4},
                                                {"Gelu", 6},
                                                {"Gemm", 1},
                                                {"LayerNormalization", 13},
                                                {"MatMul", 36},
                                                {"Range", 1},
                                                {"Reshape", 26},
                                                {"Tanh", 1},
                                                {"Transpose", 24},
                                                {"Where", 1}}));
  expect_attention(model, 0, 4);
}

TEST(Models, resnet_and_mlp_stay_what_they_are) {
  EXPECT_EQ(histogram(*rewritten("resnet").graph), (Histogram{{"Add", 9},
                                                              {"Conv", 20},
                                                              {"Gemm", 1},
                                                              {"GlobalAveragePool", 1},
                                                              {"MaxPool", 1},
                                                              {"Relu", 17},
                                                              {"Reshape", 1}}));
  EXPECT_EQ(histogram(*rewritten("mlp").graph), (Histogram{{"Gemm", 2}, {"Relu", 1}}));
}

TEST(Models, unoptimized_exports_for_training_come_out_the_same) {
  EXPECT_EQ(histogram(*rewritten("training/gpt").graph), (Histogram{{"Add", 13},
                                                                    {"Attention", 2},
                                                                    {"Gather", 2},
                                                                    {"Gelu", 2},
                                                                    {"LayerNormalization", 5},
                                                                    {"MatMul", 9},
                                                                    {"Range", 1},
                                                                    {"Reshape", 9},
                                                                    {"Split", 2},
                                                                    {"Transpose", 9}}));
  EXPECT_EQ(histogram(*rewritten("training/llama").graph), (Histogram{{"Add", 4},
                                                                      {"Attention", 2},
                                                                      {"Cast", 1},
                                                                      {"Cos", 1},
                                                                      {"Gather", 1},
                                                                      {"MatMul", 15},
                                                                      {"Mul", 3},
                                                                      {"RMSNormalization", 5},
                                                                      {"Range", 1},
                                                                      {"Reshape", 9},
                                                                      {"RotaryEmbedding", 4},
                                                                      {"Sin", 1},
                                                                      {"Swish", 2},
                                                                      {"Transpose", 23}}));
  EXPECT_EQ(histogram(*rewritten("training/cnn").graph), (Histogram{{"Add", 2},
                                                                    {"BatchNormalization", 1},
                                                                    {"Conv", 3},
                                                                    {"Gelu", 1},
                                                                    {"Gemm", 1},
                                                                    {"MaxPool", 1},
                                                                    {"ReduceMean", 1},
                                                                    {"Relu", 2},
                                                                    {"Reshape", 1}}));
}

}  // namespace
}  // namespace tessera::rewrite

// Every model, on every mesh, against the answers that came with it; and the communication that each preset costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "compiler/answers.h"

namespace tessera::compiler {
namespace {

struct MeshCase {
  std::string mesh, preset;
};

class AllModels : public testing::TestWithParam<std::tuple<std::string, MeshCase>> {};

TEST_P(AllModels, GiveTheSingleDeviceAnswer) {
  const auto& [model, on] = GetParam();
  expect_answers(model, on.mesh, on.preset);
}

// Query heads are split however they share key heads.
TEST(Models, HeadsKeepAllRanksBusy) {
  using Case = std::pair<std::string, std::string>;
  for (const auto& [model, mesh] :
       {Case("llama", "tp=3"), {"llama", "tp=4"}, {"llama", "tp=8"}, {"tiny", "tp=2"}, {"tiny", "tp=6"}}) {
    const Compiled compiled = compile_on(model, mesh, "megatron");
    for (const std::string& warning : compiled.warnings)
      EXPECT_EQ(warning.find("idle"), std::string::npos) << model << " on " << mesh << ": " << warning;
    int64_t heads = 0;
    for (const spmd::NodeLayout& node : compiled.layout->nodes)
      if (node.node->is("Attention")) {
        const auto& decision = compiled.decisions.nodes[compiled.layout->index_of(node.node)];
        heads = *largest_shard(decision.operands[0], compiled.program->mesh)
                     .substitute([](std::string_view) { return std::optional(Expr(1)); })
                     .constant() /
                *node.node->inputs[0]->shape()[3].constant();
        const int64_t all = *node.node->inputs[0]->shape()[1].constant();
        EXPECT_EQ(heads, (all + compiled.program->mesh.size() - 1) / compiled.program->mesh.size())
            << model << " on " << mesh;
      }
    EXPECT_GT(heads, 0);
    expect_answers(model, mesh, "megatron");
  }
}

// Causal queries stay where they are, from the first operator to the last.
TEST(Models, ASplitSequenceGathersKeysAndValuesOnly) {
  const OnnxModel model = import_model(folder_of("llama") / "model.onnx");
  CompileOptions options;
  for (const char* mesh : {"sp=2", "sp=3", "sp=5"}) {
    options.mesh = Mesh::parse(mesh);
    options.annotations = {AnnotationRequest::parse("input_ids=[-,sp]", "test")};
    const Compiled compiled = compile(model, options);
    int keys_and_values = 0;
    for (const auto& node : compiled.program->graph->nodes()) {
      if (node->domain != spmd::kCommDomain) continue;
      EXPECT_EQ(node->op_type, "AllGather");
      if (node->outputs[0]->rank() == 4 && is_float(node->outputs[0]->dtype()))
        ++keys_and_values;
      else
        EXPECT_TRUE(is_integer(node->outputs[0]->dtype()) || compiled.program->graph->is_output(node->outputs[0]));
    }
    EXPECT_EQ(keys_and_values, 2 * 2) << "of each of two layers";
    runtime::Executor executor(compiled.program, {});
    const auto expected = read_npz(folder_of("llama") / "outputs_0.npz").at("logits");
    const auto actual = executor.run(read_npz(folder_of("llama") / "inputs_0.npz")).at("logits");
    ASSERT_EQ(actual.dims, expected.dims);
    for (size_t i = 0; i < expected.as<float>().size(); ++i)
      ASSERT_NEAR(actual.as<float>()[i], expected.as<float>()[i], 1e-4) << mesh << " element " << i;
  }
}

// One session reuses its preparations from length to length, and forgets the oldest.
TEST(Models, AGrowingCacheHasTheBitsOfAFreshStart) {
  for (std::string mesh : {"tp=1", "tp=2", "dp=2"}) {
    Compiled compiled = compile_on("llama-cache", mesh, "");
    runtime::Executor lasting(compiled.program, {});
    auto inputs = read_npz(folder_of("llama-cache") / "inputs_0.npz");
    std::vector<std::pair<runtime::Executor::Tensors, runtime::Executor::Tensors>> steps;
    for (int step = 0; step < 20; ++step) {
      auto outputs = lasting.run(inputs);
      steps.emplace_back(inputs, outputs);
      if (step % 3 == 0) {
        auto fresh = runtime::Executor(compiled.program, {}).run(inputs);
        for (const auto& [name, tensor] : fresh)
          ASSERT_EQ(std::memcmp(outputs.at(name).data, tensor.data, tensor.bytes), 0)
              << name << " on " << mesh << " at step " << step;
      }
      for (auto& [name, tensor] : inputs)
        if (name.starts_with("past")) tensor = outputs.at("present" + name.substr(4));
    }
    EXPECT_EQ(inputs.at("past.0.key").dims[2], 5 + 20 * 3);
    // And back, to lengths whose plans have made room.
    for (auto step = steps.rbegin(); step != steps.rend(); ++step)
      for (const auto& [name, tensor] : lasting.run(step->first))
        ASSERT_EQ(std::memcmp(step->second.at(name).data, tensor.data, tensor.bytes), 0) << name << " on " << mesh;
  }
}

TEST(Models, ComputeInBfloat16WithinItsBound) {
  for (std::string model : {"mlp", "tiny", "gpt2", "llama", "bert", "vit", "resnet"})
    for (std::string mesh : {"tp=1", "tp=2", "tp=3", "dp=2,tp=2"}) {
      SCOPED_TRACE(model + " on " + mesh);
      expect_answers(model, mesh, "", DType::bfloat16);
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, AllModels,
    testing::Combine(
        testing::Values("mlp", "tiny", "gpt2", "gpt2-sdpa", "llama", "llama-cache", "bert", "vit", "resnet"),
        testing::Values(MeshCase{"tp=1", ""}, MeshCase{"tp=2", ""}, MeshCase{"tp=3", ""}, MeshCase{"tp=4", ""},
                        MeshCase{"tp=5", ""}, MeshCase{"dp=2", ""}, MeshCase{"dp=3", ""}, MeshCase{"dp=2,tp=2", ""},
                        MeshCase{"dp=2,tp=3", ""}, MeshCase{"tp=2", "megatron+sequence"})),
    [](const auto& info) {
      std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param).mesh + std::get<1>(info.param).preset;
      for (char& c : name)
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      return name;
    });

using Counts = std::map<std::string, int>;

Counts collectives(const Compiled& compiled) {
  Counts counts;
  for (const auto& node : compiled.program->graph->nodes())
    if (node->domain == spmd::kCommDomain) ++counts[node->op_type];
  return counts;
}

// Layers are alike: what L layers cost is (the embedding's and head's) + L times (a layer's). The models' layers are
// counted by their Attention nodes.
int layers(const Compiled& compiled) {
  int count = 0;
  for (const auto& node : compiled.model->graph->nodes()) count += node->is("Attention");
  return count;
}

class Communication : public testing::TestWithParam<std::string> {};

TEST_P(Communication, MegatronReducesTwicePerLayer) {
  for (std::string mesh : {"tp=2", "tp=3", "tp=5"}) {
    Compiled compiled = compile_on(GetParam(), mesh, "megatron");
    int embedding = GetParam() == "vit" ? 0 : 1;  // vocabulary-parallel lookup; the split head leaves as it is
    EXPECT_EQ(collectives(compiled), (Counts{{"AllReduce", 2 * layers(compiled) + embedding}})) << mesh;
  }
}

TEST_P(Communication, DataParallelismIsSilent) {
  EXPECT_EQ(collectives(compile_on(GetParam(), "dp=2", "dp")), Counts{});
}

TEST_P(Communication, MegatronGathersNoWeight) {
  for (std::string mesh : {"tp=2", "tp=3", "tp=4", "tp=5", "dp=2,tp=3"}) {
    Compiled compiled = compile_on(GetParam(), mesh, "");
    for (const auto& record : compiled.program->reshards) {
      const Value* value = compiled.model->graph->find(record.value);
      if (value && value->kind == ValueKind::state) {
        EXPECT_TRUE(record.bytes.is(0)) << mesh << ": " << record.value << " for " << record.consumer;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transformers, Communication,
                         testing::Values("tiny", "gpt2", "gpt2-sdpa", "llama", "llama-cache", "bert", "vit"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Communication, SequenceGathersAndScattersTwicePerLayer) {
  for (std::string model : {"tiny", "gpt2", "llama"}) {
    Compiled compiled = compile_on(model, "tp=2", "megatron+sequence");
    // One more of each: the embedding's sum is scattered, and the head's operand gathered.
    int count = 2 * layers(compiled) + 1;
    EXPECT_EQ(collectives(compiled), (Counts{{"AllGather", count}, {"ReduceScatter", count}})) << model;
  }
}

}  // namespace
}  // namespace tessera::compiler

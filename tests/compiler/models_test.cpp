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

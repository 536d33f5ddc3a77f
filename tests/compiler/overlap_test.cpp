// Whole models, computing while communications are under way.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "runtime/checked_world.h"
#include "tessera/compiler/compile.h"
#include "tessera/io/npz.h"
#include "tessera/onnx/import.h"
#include "tessera/runtime/executor.h"

namespace tessera::compiler {
namespace {

struct OverlapCase {
  const char* name;
  const char* mesh;
  const char* preset;
};

class OverlappedModels : public testing::TestWithParam<std::tuple<std::string, OverlapCase>> {};

TEST_P(OverlappedModels, give_the_same_bits_in_hardly_more_memory) {
  const auto& [model, on] = GetParam();
  const auto folder = std::filesystem::path(TESSERA_TEST_DATA) / "models" / model;
  CompileOptions options;
  options.mesh = Mesh::parse(on.mesh);
  options.presets = on.preset;
  const Compiled compiled = compile(import_model(folder / "model.onnx"), options);
  auto executor = [&](bool overlap) {
    runtime::ExecutorOptions options;
    options.threads_per_rank = 1;
    options.connected = std::make_shared<runtime::CheckedWorld>(static_cast<int>(compiled.program->mesh.size()));
    options.overlap = overlap;
    return std::make_unique<runtime::Executor>(compiled.program, options);
  };
  const auto at_once = executor(false), overlapped = executor(true);
  const auto inputs = read_npz(folder / "inputs_0.npz");
  const auto expected = at_once->run(inputs), actual = overlapped->run(inputs);
  for (const auto& [name, tensor] : expected) {
    ASSERT_EQ(actual.at(name).bytes, tensor.bytes);
    EXPECT_EQ(std::memcmp(actual.at(name).data, tensor.data, tensor.bytes), 0) << name;
  }
  const Symbols symbols = at_once->bind_symbols(inputs);
  const auto before = at_once->peak_bytes(symbols), after = overlapped->peak_bytes(symbols);
  constexpr size_t kSlack = 1 << 20;
  for (size_t rank = 0; rank < before.size(); ++rank)
    EXPECT_LE(after[rank], before[rank] + std::max(before[rank] / 20, kSlack)) << "rank " << rank;
}

INSTANTIATE_TEST_SUITE_P(All, OverlappedModels,
                         testing::Combine(testing::Values("mlp", "gpt2", "llama", "bert", "vit", "resnet"),
                                          testing::Values(OverlapCase{"tp_2", "tp=2", ""},
                                                          OverlapCase{"dp_2_tp_2", "dp=2,tp=2", ""},
                                                          OverlapCase{"sequence", "tp=2", "megatron+sequence"})),
                         [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param).name; });

}  // namespace
}  // namespace tessera::compiler

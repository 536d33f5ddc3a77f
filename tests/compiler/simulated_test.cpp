// The simulated device gives the bits of the CPU, for every model: nothing relies on memory of the host, or on kernels
// that have ended when the host goes on.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "tessera/compiler/compile.h"
#include "tessera/io/npz.h"
#include "tessera/onnx/import.h"
#include "tessera/runtime/executor.h"

namespace tessera::compiler {
namespace {

namespace fs = std::filesystem;
using runtime::Executor;

fs::path models() {
  return fs::path(TESSERA_TEST_DATA) / "models";
}

Executor executor_on(const std::string& device, const std::shared_ptr<const spmd::Program>& program) {
  runtime::ExecutorOptions options;
  options.device = device;
  options.threads_per_rank = 2;
  return {program, options};
}

void expect_same_bits(const Executor::Tensors& got, const Executor::Tensors& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    ASSERT_EQ(got.at(name).dims, tensor.dims) << what << " " << name;
    EXPECT_EQ(std::memcmp(got.at(name).data, tensor.data, tensor.bytes), 0) << what << " " << name;
  }
}

class OnSimulated : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(OnSimulated, a_model_has_the_bits_of_the_cpu) {
  const auto& [model, mesh] = GetParam();
  CompileOptions options;
  options.mesh = Mesh::parse(mesh);
  const Compiled compiled = compile(import_model(models() / model / "model.onnx"), options);
  Executor cpu = executor_on("cpu", compiled.program), simulated = executor_on("simulated", compiled.program);
  for (int round = 0; round < 2; ++round)  // the second finds an arena that was used
    for (int cases = 0;; ++cases) {
      const fs::path inputs = models() / model / ("inputs_" + std::to_string(cases) + ".npz");
      if (!fs::exists(inputs)) break;
      const Executor::Tensors given = read_npz(inputs);
      expect_same_bits(simulated.run(given), cpu.run(given), model + " on " + mesh);
    }
}
INSTANTIATE_TEST_SUITE_P(Models, OnSimulated,
                         testing::Combine(testing::Values("mlp", "gpt2", "llama", "llama-cache", "bert", "vit",
                                                          "resnet"),
                                          testing::Values("tp=1", "tp=2", "dp=2", "dp=2,tp=2", "tp=3")),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param);
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

// A session goes from size to size: plans are derived from earlier ones.
TEST(OnSimulatedSizes, a_growing_cache_has_the_bits_of_the_cpu) {
  for (const std::string mesh : {"tp=1", "tp=2", "dp=2"}) {
    CompileOptions options;
    options.mesh = Mesh::parse(mesh);
    const Compiled compiled = compile(import_model(models() / "llama-cache" / "model.onnx"), options);
    Executor cpu = executor_on("cpu", compiled.program), simulated = executor_on("simulated", compiled.program);
    Executor::Tensors given = read_npz(models() / "llama-cache" / "inputs_0.npz");
    for (int step = 0; step < 6; ++step) {
      const Executor::Tensors want = cpu.run(given);
      expect_same_bits(simulated.run(given), want, mesh + " step " + std::to_string(step));
      for (auto& [name, tensor] : given)
        if (name.starts_with("past")) tensor = want.at("present" + name.substr(4));
    }
  }
}

}  // namespace
}  // namespace tessera::compiler

// CPUs without AVX-512, without AVX2, and with nothing beyond the first x86-64: emulated whole, so that our own kernels
// choose as they would there, and so does oneDNN. The answers are the ones that came with the models.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/run_command.h"

namespace tessera {
namespace {

using testing::ElementsAreArray;

struct Cpu {
  const char* name;  ///< as QEMU knows it
  std::vector<std::string> instruction_sets;
};

const Cpu kBaseline{"qemu64", {}}, kNehalem{"Nehalem", {}}, kHaswell{"Haswell", {"avx2", "fma"}};

struct Trial {
  Cpu cpu;
  std::string model;    ///< its folder in the repository
  std::string options;  ///< of tessera verify
};

std::vector<Trial> trials() {
  std::vector<Trial> all;
  for (const Cpu& cpu : {kNehalem, kHaswell}) {
    for (const char* model : {"tests/models/mlp", "tests/models/resnet", "tests/models/llama"})
      for (const char* options : {"", "--mesh tp=2"}) all.push_back({cpu, model, options});
    all.push_back({cpu, "tests/models/llama", "--mesh tp=2 --dtype bfloat16"});
    all.push_back({cpu, "examples/tiny", "--mesh tp=2"});
  }
  all.push_back({kBaseline, "tests/models/mlp", "--mesh tp=2"});
  return all;
}

void PrintTo(const Trial& trial, std::ostream* out) {
  *out << trial.cpu.name << " " << trial.model << " " << trial.options;
}

class Emulated : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizers' memory layout is not for an emulator";
#endif
    ASSERT_EQ(test::run_command("command -v qemu-x86_64", folder_).code, 0)
        << "qemu-x86_64 is missing; install the package qemu-user, which apt-tests.txt lists";
  }

  test::Ran tessera_on(const Cpu& cpu, const std::string& words) {
    return test::run_command(fmt::format("qemu-x86_64 -cpu {} {} {}", cpu.name, TESSERA_BINARY, words), folder_);
  }

  testing_io::TemporaryFolder folder_;
};

class OlderCpus : public Emulated, public testing::WithParamInterface<Trial> {};

TEST_P(OlderCpus, give_the_answers_that_came_with_the_model) {
  const auto& [cpu, model, options] = GetParam();
  const std::string folder = std::string(TESSERA_TEST_DATA) + "/../" + model;
  const test::Ran ran = tessera_on(
      cpu,
      fmt::format("verify {0}/model.onnx --inputs {0}/inputs_0.npz --expected {0}/outputs_0.npz {1}", folder, options));
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
}

INSTANTIATE_TEST_SUITE_P(Models, OlderCpus, testing::ValuesIn(trials()));

// Else the test above would compare this machine with itself.
TEST_F(Emulated, cpus_are_seen_as_what_they_are) {
  for (const Cpu& cpu : {kBaseline, kNehalem, kHaswell}) {
    const test::Ran ran = tessera_on(cpu, "info --json");
    ASSERT_EQ(ran.code, 0) << ran.err;
    const std::vector<std::string> seen = nlohmann::json::parse(ran.out)["instruction_sets"];
    EXPECT_THAT(seen, ElementsAreArray(cpu.instruction_sets)) << cpu.name;
  }
}

}  // namespace
}  // namespace tessera

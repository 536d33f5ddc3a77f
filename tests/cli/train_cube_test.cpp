// Evaluations of a training run on every product of presets, each step, at the end or not at all, on every engine.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "cli/command_line.h"
#include "cli/launchers.h"
#include "sample.h"

namespace tessera {
namespace {

/// One product of presets.
struct Product {
  std::string mesh, presets;
  int ranks = 1;
};

struct Choice {
  std::string axes, presets;
  int ranks = 1;
};

// What divides the batch, times what divides layers, times what divides experts, on at most eight ranks.
std::vector<Product> products(bool has_experts) {
  const std::vector<Choice> batch = {
      {}, {"dp=2", "dp", 2}, {"dp=2", "zero1", 2}, {"fsdp=2", "fsdp", 2}, {"dp=2,fsdp=2", "hsdp", 4}};
  const std::vector<Choice> layers = {
      {}, {"tp=2", "megatron", 2}, {"tp=2", "megatron+sequence", 2}, {"tp=2", "megatron+features", 2}};
  std::vector<Choice> experts = {{}};
  if (has_experts) experts.push_back({"ep=2", "expert", 2});
  constexpr int kMostRanks = 8;
  std::vector<Product> all;
  for (const Choice& first : batch)
    for (const Choice& second : layers)
      for (const Choice& third : experts) {
        Product product;
        for (const Choice& chosen : {first, second, third}) {
          if (chosen.axes.empty()) continue;
          product.mesh += (product.mesh.empty() ? "" : ",") + chosen.axes;
          product.presets += (product.presets.empty() ? "" : "+") + chosen.presets;
          product.ranks *= chosen.ranks;
        }
        if (product.ranks > 1 && product.ranks <= kMostRanks) all.push_back(product);
      }
  return all;
}

const std::vector<std::string> kWhen = {"never", "at_the_end", "each_step"};

std::string threads_only(int, const std::string& command) {
  return command;
}
const test::Launcher kThreads{"threads", threads_only};

/// A test makes all runs, or a sample.
class TrainCube : public CommandLine {
 protected:
  // The command, without a mesh and data to evaluate.
  std::string words_of(const std::string& model) {
    const std::string folder = std::string(TESSERA_TEST_DATA) + "/models/" + model;
    std::string data = folder + "/data.npz";
    if (model == "moe")
      write_npz(data = (folder_ / "tokens.npz").string(), {{"input_ids", tokens(0)}, {"labels", tokens(1)}});
    static const std::map<std::string, std::string> loss = {{"training/mlp", " --loss mse --labels target"},
                                                            {"training/cnn", " --labels label"}};
    const auto own = loss.find(model);
    data_ = data;
    return " train " + folder +
           "/model.onnx --quiet --json --steps 2 --threads 1 --optimizer sgd:momentum=0.9 --lr 0.1 --data " + data +
           (own == loss.end() ? "" : own->second);
  }

  // [steps, batch, sequence] of a vocabulary of 96.
  static Tensor tokens(int shift) {
    constexpr int64_t kSteps = 2, kBatch = 4, kSequence = 8, kVocabulary = 96;
    std::vector<int64_t> all(kSteps * kBatch * kSequence);
    for (size_t i = 0; i < all.size(); ++i) all[i] = (static_cast<int64_t>(i) + shift) * 7919 % 1009 % kVocabulary;
    return Tensor::of(DType::int64, {kSteps, kBatch, kSequence}, all);
  }

  std::string evaluated(const std::string& when) const {
    if (when == "never") return "";
    return " --eval-steps 1 --eval-data " + data_ + (when == "each_step" ? " --eval-every 1" : "");
  }

  struct Made {
    json answer;
    Tensors parameters;
  };

  Made train(const std::string& command) {
    const std::string after = (folder_ / "after.npz").string();
    std::filesystem::remove(after);
    const Ran ran = test::run_command("timeout -k 1 100 env " + command, folder_);
    EXPECT_EQ(ran.code, 0) << command << "\n" << ran.err;
    if (ran.code != 0) return {};
    return {json::parse(ran.out, nullptr, false), read_npz(after)};
  }

  Made train(const test::Launcher& launcher, const Product& product, const std::string& words) {
    return train(launcher.start(
        product.ranks, TESSERA_BINARY + words + " --save-final " + (folder_ / "after.npz").string() +
                           (product.mesh.empty() ? "" : " --mesh " + product.mesh + " --preset " + product.presets)));
  }

  // The model on all products, evaluated at all times; in a sample, one of `stride` of these, from the one of that
  // number on.
  void expect_as_on_one_rank(const std::string& model, const test::Launcher& launcher, size_t first, size_t stride) {
    const std::string words = words_of(model);
    std::map<std::string, Made> one;
    size_t at = 0;
    for (const Product& product : products(model == "moe"))
      for (const std::string& when : kWhen) {
        if (const size_t number = at++; !test::tries_all() && number % stride != first) continue;
        SCOPED_TRACE(model + " on " + product.mesh + " by " + product.presets + ", evaluated " + when);
        if (!one.contains(when)) one[when] = train(kThreads, {}, words + evaluated(when));
        const Made made = train(launcher, product, words + evaluated(when));
        if (made.answer.is_object()) expect_near(made, one.at(when));
      }
  }

  static std::vector<double> losses_of(const json& answer) {
    std::vector<double> all = answer.at("losses");
    for (const json& evaluation : answer.value("evaluations", json::array())) all.push_back(evaluation.at("loss"));
    return all;
  }

  static void expect_near(const Made& made, const Made& wanted) {
    const std::vector<double> losses = losses_of(made.answer), expected = losses_of(wanted.answer);
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-4 * std::abs(expected[i])) << i;
    ASSERT_EQ(made.parameters.size(), wanted.parameters.size());
    for (const auto& [name, values] : wanted.parameters) {
      ASSERT_TRUE(made.parameters.contains(name)) << name;
      if (values.dtype != DType::float32) continue;
      const auto a = made.parameters.at(name).as<float>(), b = values.as<float>();
      ASSERT_EQ(a.size(), b.size()) << name;
      float largest = 0, difference = 0;
      for (size_t i = 0; i < a.size(); ++i) {
        largest = std::max(largest, std::abs(b[i]));
        difference = std::max(difference, std::abs(a[i] - b[i]));
      }
      EXPECT_LE(difference, 1e-4f * largest) << name;
    }
  }

  std::string data_;
};

class TrainCubeOn : public TrainCube, public testing::WithParamInterface<test::Launcher> {
 protected:
  void SetUp() override {
    if (GetParam().engine == kThreads.engine) return;
    if (const std::string why = test::missing(GetParam().engine, folder_); !why.empty()) GTEST_SKIP() << why;
  }
};

INSTANTIATE_TEST_SUITE_P(Engines, TrainCubeOn, testing::Values(kThreads, test::kSpawn, test::kMpirun, test::kTorchrun),
                         test::engine_of);

// A model of attention and of experts takes all presets.
TEST_P(TrainCubeOn, gives_the_losses_of_one_rank) {
  static const std::map<std::string, size_t> first = {{"threads", 0}, {"processes", 9}, {"mpi", 19}, {"gloo", 28}};
  expect_as_on_one_rank("moe", GetParam(), first.at(GetParam().engine), 37);
}

// What a preset stores and splits depends on the operators that a model has.
TEST_F(TrainCube, gives_the_losses_of_one_rank_for_unlike_models) {
  size_t first = 0;
  for (const char* model : {"training/mlp", "training/cnn", "training/gpt", "training/llama"})
    expect_as_on_one_rank(model, kThreads, first += 7, 29);
}

}  // namespace
}  // namespace tessera

// Evaluations of a training run: the same losses on any mesh, and refused before the first step where they cannot be.
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>

#include "cli/command_line.h"

namespace tessera {
namespace {

class TrainAndEvaluate : public CommandLine {
 protected:
  static std::string in(const std::string& model, const char* file) {
    return std::string(TESSERA_TEST_DATA) + "/models/training/" + model + "/" + file;
  }
  std::string at(const std::string& name) { return (folder_ / name.c_str()).string(); }

  // The command, without a mesh and data to evaluate.
  static std::string words_of(const std::string& model) {
    static const std::map<std::string, std::string> loss = {{"mlp", "--loss mse --labels target "},
                                                            {"cnn", "--labels label "}};
    const auto own = loss.find(model);
    return "train " + in(model, "model.onnx") + " --data " + in(model, "data.npz") + " --threads 1 " +
           (own == loss.end() ? "" : own->second);
  }
  // The model's data, as an evaluation takes them.
  static std::string evaluated(const std::string& model) {
    return "--eval-steps 1 --eval-data " + in(model, "data.npz") + " ";
  }

  // The losses of a run's evaluations.
  std::vector<double> losses(const std::string& words) {
    std::vector<double> all;
    const json run = parsed(words);
    for (const json& evaluation : run.value("evaluations", json::array())) all.push_back(evaluation.at("loss"));
    return all;
  }
};

void expect_near(const std::vector<double>& made, const std::vector<double>& wanted) {
  ASSERT_EQ(made.size(), wanted.size());
  for (size_t i = 0; i < made.size(); ++i) EXPECT_NEAR(made[i], wanted[i], 1e-4 * std::abs(wanted[i])) << i;
}

// On each of these meshes, an evaluation by itself would store some state otherwise than the step.
TEST_F(TrainAndEvaluate, as_on_one_rank) {
  for (const auto& [model, mesh] : std::map<std::string, std::string>{
           {"mlp", "fsdp=2,tp=2"}, {"cnn", "tp=2"}, {"gpt", "dp=2,tp=2 --preset 2d"}, {"llama", "tp=3"}}) {
    SCOPED_TRACE(model + " " + mesh);
    const std::string words = words_of(model) + "--steps 2 " + evaluated(model);
    const std::vector<double> one = losses(words + "--eval-every 1");
    ASSERT_EQ(one.size(), 2u);
    expect_near(losses(words + "--eval-every 1 --mesh " + mesh), one);
    expect_near(losses(words + "--mesh " + mesh + " --save-final " + at("end.npz")), {one[1]});
    EXPECT_TRUE(std::filesystem::exists(at("end.npz")));
  }
}

TEST_F(TrainAndEvaluate, after_going_on_from_a_checkpoint) {
  const std::string words = words_of("cnn") + evaluated("cnn") + "--checkpoints " + at("run") + " ";
  const std::vector<double> one = losses(words_of("cnn") + "--steps 2 " + evaluated("cnn"));
  losses(words + "--steps 1 --mesh fsdp=2,tp=2");
  expect_near(losses(words + "--steps 2 --resume --mesh tp=3"), one);
}

// Data to evaluate may come in other batches than those to train on.
TEST_F(TrainAndEvaluate, batches_of_another_size) {
  std::vector<std::pair<std::string, Tensor>> arrays;
  for (auto& [name, array] : read_npz(in("mlp", "data.npz"))) {
    const int64_t steps = array.dims[0], batch = array.dims[1],
                  bytes = static_cast<int64_t>(array.bytes) / (steps * batch);
    Dims dims = array.dims;
    dims[0] = 1, dims[1] = 3;
    Tensor few = Tensor::zeros(array.dtype, dims);
    std::memcpy(few.mutable_data(), array.data, static_cast<size_t>(3 * bytes));
    arrays.emplace_back(name, few);
  }
  write_npz(folder_ / "few.npz", {arrays.begin(), arrays.end()});
  const std::string words = words_of("mlp") + "--steps 1 --eval-data " + at("few.npz") + " ";
  expect_near(losses(words + "--mesh dp=2"), losses(words));
}

TEST_F(TrainAndEvaluate, only_what_can_be_evaluated_at_the_end) {
  const std::string words = "train " + in("gpt", "model.onnx") + " --sequence 16 --batch 4 --steps 2 --metrics " +
                            at("metrics") + " --data " + at("text.txt") + " --eval-data ";
  std::ofstream(at("text.txt")) << std::string(2000, 'a');
  std::ofstream(at("wide.txt")) << std::string(600, 'a') + std::string(80, '\xf0');
  EXPECT_THAT(mistake(words + at("wide.txt")), AllOf(HasSubstr("wide.txt"), HasSubstr("240")));
  EXPECT_EQ(contents(at("metrics")), "") << "no step has been made";
  EXPECT_EQ(tessera(words + at("text.txt")).code, 0);
}

// The model's file takes 16-bit parameters, and those that trained are float32.
TEST_F(TrainAndEvaluate, only_what_can_be_written_at_the_end) {
  const std::string model = at("half.onnxtxt");
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 22]>
g (float[b, 4] x) => (float[b, 3] y) <float16[4, 3] w> {
  h = Cast <to = 10> (x)
  p = MatMul (h, w)
  y = Cast <to = 1> (p)
})";
  write_npz(folder_ / "x.npz",
            {{"x", Tensor::zeros(DType::float32, {2, 6, 4})}, {"target", Tensor::zeros(DType::float32, {2, 6, 3})}});
  const std::string words = "train " + model + " --loss mse --labels target --data " + at("x.npz") + " --metrics " +
                            at("metrics") + " --save-final ";
  for (const std::string dry : {"", " --dry-run"})
    EXPECT_THAT(mistake(words + at("after.onnx") + dry), HasSubstr("'w' is trained as float32 [4, 3]"));
  EXPECT_EQ(contents(at("metrics")), "") << "no step has been made";
  EXPECT_EQ(tessera(words + at("after.npz")).code, 0);
}

// What a limit is compared with is the rank that needs most, which with stages may be the last one.
TEST_F(TrainAndEvaluate, within_the_limit_on_all_stages) {
  const std::string model = at("stages.onnxtxt");
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 22]>
g (float[b, 32] x) => (float[b, 32] y) <float[32, 32] a, float[32, 512] c, float[512, 32] d> {
  [first] p = MatMul (x, a)
  [relu] h = Relu (p)
  [up] u = MatMul (h, c)
  [act] t = Relu (u)
  [down] y = MatMul (t, d)
})";
  write_npz(folder_ / "x.npz", {{"x", Tensor::zeros(DType::float32, {2, 16, 32})},
                                {"target", Tensor::zeros(DType::float32, {2, 16, 32})}});
  const std::string words = "train " + model + " --loss mse --labels target --bucket-bytes 0 --mesh pp=2 --data " +
                            at("x.npz") + " --place up=pp:1 --place act=pp:1 --place down=pp:1 --freeze c --freeze d";
  for (const std::string evaluation : {"", " --eval-data "}) {
    const std::string asked = words + evaluation + (evaluation.empty() ? "" : at("x.npz"));
    SCOPED_TRACE(asked);
    const json ranks = parsed(asked + " --quiet --steps 1").at("ranks");
    const auto first = ranks.at(0).at("planned_bytes").get<int64_t>();
    const auto last = ranks.at(1).at("planned_bytes").get<int64_t>();
    ASSERT_LT(first, last);
    const json plan = parsed(asked + " --dry-run");
    EXPECT_EQ(plan.at("peak_bytes"), last);
    const auto process = plan.at("process").at("peak_bytes").get<int64_t>();
    EXPECT_LT(process, 2 * last);
    const std::string limited = asked + " --dry-run --memory-limit ";  // of both ranks
    EXPECT_THAT(mistake(limited + std::to_string(process - 1)), HasSubstr("more than the limit"));
    EXPECT_EQ(tessera(limited + std::to_string(process)).code, 0);
  }
}

// An evaluation reads the weights that do not change where the step does.
TEST_F(TrainAndEvaluate, frozen_weights_that_are_planned_once) {
  const std::string model = at("frozen.onnxtxt");
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 22]>
g (float[b, 32] x) => (float[b, 32] y) <float[32, 4096] c, float[4096, 32] d, float[32, 32] a> {
  u = MatMul (x, c)
  t = Relu (u)
  v = MatMul (t, d)
  y = MatMul (v, a)
})";
  write_npz(folder_ / "x.npz",
            {{"x", Tensor::zeros(DType::float32, {2, 2, 32})}, {"target", Tensor::zeros(DType::float32, {2, 2, 32})}});
  const std::string words = "train " + model + " --loss mse --labels target --steps 1 --quiet --data " + at("x.npz") +
                            " --eval-data " + at("x.npz") + " --bucket-bytes 0 ";
  for (const std::string mesh : {"--mesh dp=1 ", "--mesh dp=2 ", "--mesh tp=2 "}) {
    SCOPED_TRACE(mesh);
    const auto evaluating = [&](const std::string& frozen) {
      return parsed(words + mesh + frozen).at("memory_classes").at("evaluation").get<int64_t>();
    };
    const int64_t none = evaluating("");
    EXPECT_GE(none, 0);
    EXPECT_LT(evaluating("--freeze c --freeze d"), none + 600'000) << "each has 512 KiB, and one is packed, too";
  }
}

// A dry run compiles all that the run will need, also where it has no data.
TEST_F(TrainAndEvaluate, what_a_dry_run_has_planned) {
  const std::string words =
      "train " + in("cnn", "model.onnx") + " --labels label --dry-run --mesh tp=2 --shapes batch=8 ";
  const json alone = parsed(words), both = parsed(words + "--eval-data later.npz");
  EXPECT_EQ(alone.at("memory_classes").at("evaluation"), 0);
  EXPECT_GT(both.at("memory_classes").at("evaluation"), 0);
}

}  // namespace
}  // namespace tessera

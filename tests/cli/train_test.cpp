// Training on the command line: data, options, checkpoints, evaluation, and what is written.
#include <sys/wait.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "cli/command_line.h"
#include "cli/started.h"

namespace tessera {
namespace {

class TrainCommand : public CommandLine {
 protected:
  const std::string gpt_ = std::string(TESSERA_TEST_DATA) + "/models/training/gpt/model.onnx";
  const std::string arrays_ = std::string(TESSERA_TEST_DATA) + "/models/training/gpt/data.npz";

  std::string at(const char* name) { return (folder_ / name).string(); }

  // A file of ASCII text, whose bytes are below the model's 131 tokens.
  std::string text(const std::string& rate = "1e-3") {
    std::ofstream file(folder_ / "text.txt");
    for (int i = 0; i < 400; ++i) file << "line " << i * 7919 % 1000 << " of a text to learn from\n";
    return "--data " + at("text.txt") + " --batch 4 --sequence 16 --clip 1 --lr " + rate + " ";
  }

  std::map<std::string, Tensor> trained(const std::string& words, const char* file) {
    const Ran ran = tessera("train " + gpt_ + " " + words + " --save-final " + at(file));
    EXPECT_EQ(ran.code, 0) << words << "\n" << ran.err;
    return read_npz(at(file));
  }
};

using TensorMap = std::map<std::string, Tensor>;

void expect_same_bits(const TensorMap& a, const TensorMap& b) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_GT(a.size(), 20u);
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    ASSERT_EQ(std::memcmp(tensor.data, b.at(name).data, tensor.bytes), 0) << name;
  }
}

void expect_near(const TensorMap& a, const TensorMap& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a)
    for (int64_t i = 0; i < tensor.count(); ++i)
      ASSERT_NEAR(tensor.as<float>()[i], b.at(name).as<float>()[i], tolerance) << name;
}

TEST_F(TrainCommand, goes_on_from_a_checkpoint_with_the_same_bits) {
  const std::string mesh = "--mesh dp=2 ";
  const TensorMap whole = trained(text() + mesh + "--steps 8", "whole.npz");
  trained(text() + mesh + "--steps 4 --checkpoints " + at("run"), "half.npz");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/step-000004/checkpoint.json"));
  expect_same_bits(whole, trained(text() + mesh + "--steps 8 --resume --checkpoints " + at("run"), "again.npz"));
}

TEST_F(TrainCommand, goes_on_with_another_mesh_and_preset) {
  const TensorMap whole = trained(text() + "--steps 8", "whole.npz");
  trained(text() + "--mesh fsdp=3 --steps 4 --checkpoints " + at("run"), "a.npz");
  trained(text() + "--mesh tp=2 --steps 6 --resume --checkpoints " + at("run"), "b.npz");
  expect_near(whole, trained(text() + "--steps 8 --resume --checkpoints " + at("run"), "c.npz"), 2e-5);
}

TEST_F(TrainCommand, passes_over_a_damaged_checkpoint) {
  trained(text() + "--steps 4 --save-every 2 --checkpoints " + at("run"), "a.npz");
  std::filesystem::resize_file(folder_ / "run/step-000004/rank-0.bin", 100);
  const Ran ran = tessera("train " + gpt_ + " " + text() + "--steps 6 --resume --checkpoints " + at("run"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("step-000004"));
  EXPECT_THAT(ran.out, HasSubstr("goes on from " + at("run") + "/step-000002"));
}

TEST_F(TrainCommand, refuses_a_checkpoint_of_another_model) {
  const std::string mlp = std::string(TESSERA_TEST_DATA) + "/models/training/mlp/";
  EXPECT_EQ(tessera("train " + mlp + "model.onnx --data " + mlp +
                    "data.npz --loss mse --labels target --steps 2 --checkpoints " + at("run"))
                .code,
            0);
  EXPECT_THAT(
      mistake("train " + gpt_ + " " + text() + "--quiet --steps 4 --resume --other-data --checkpoints " + at("run")),
      HasSubstr("checkpoint"));
}

TEST_F(TrainCommand, keeps_the_last_checkpoints) {
  trained(text() + "--steps 6 --save-every 1 --keep 2 --checkpoints " + at("run"), "a.npz");
  std::set<std::string> kept;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "run")) kept.insert(entry.path().filename());
  EXPECT_EQ(kept, (std::set<std::string>{"step-000005", "step-000006"}));
}

TEST_F(TrainCommand, saves_and_leaves_when_it_is_told_to_end) {
  for (const char* ranks : {"1", "2"}) {
    const std::string run = at("told") + ranks;
    std::vector<std::string> words = {TESSERA_BINARY,  "train", gpt_,     "--quiet",      "--steps",    "1000000",
                                      "--checkpoints", run,     "--data", at("text.txt"), "--sequence", "16"};
    text();
    if (*ranks == '2') words.insert(words.end(), {"--mesh", "dp=2", "--spawn", "2"});
    words.insert(words.end(), {"--metrics", at("metrics.jsonl")});
    const pid_t child = test::start(folder_, words);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (contents(folder_ / "metrics.jsonl").empty() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_EQ(kill(child, SIGTERM), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 4) << ranks;
    EXPECT_FALSE(std::filesystem::is_empty(run)) << "what was done is saved";
    std::filesystem::remove(folder_ / "metrics.jsonl");
  }
}

TEST_F(TrainCommand, gives_the_same_curve_in_processes) {
  const json threads = parsed("train " + gpt_ + " --data " + arrays_ + " --steps 4 --mesh dp=2");
  const json processes = parsed("train " + gpt_ + " --data " + arrays_ + " --steps 4 --mesh dp=2 --spawn 2");
  EXPECT_EQ(threads.at("losses"), processes.at("losses"));
  EXPECT_EQ(threads.at("losses").size(), 4u);
}

TEST_F(TrainCommand, writes_a_step_that_runs_alike) {
  const json own = parsed("train " + gpt_ + " --data " + arrays_ + " --steps 5 --clip 1 --emit " + at("step.onnx"));
  auto arrays = read_npz(arrays_);
  for (auto& [name, array] : arrays) array.bytes = array.bytes / 20 * 5, array.dims[0] = 5;
  write_npz(folder_ / "five.npz", {arrays.begin(), arrays.end()});
  const Ran ran = tessera("run " + at("step.onnx") + " --state '*=next.*' --steps 5 --inputs " + at("five.npz") +
                          " --outputs " + at("out.npz"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Tensor losses = read_npz(at("out.npz")).at("loss");
  // Bodies of ordinary operators, in the places of ours, round differently.
  for (size_t i = 0; i < 5; ++i) {
    const float loss = own.at("losses")[i].get<float>();
    EXPECT_NEAR(losses.as<float>()[i], loss, 1e-5 * loss);
  }
  // Without --shapes the sizes stay open.
  EXPECT_EQ(tessera("train " + gpt_ + " --emit " + at("open.onnx")).code, 0);
  const Ran open = tessera("run " + at("open.onnx") + " --state '*=next.*' --steps 5 --inputs " + at("five.npz") +
                           " --mesh fsdp=2 --outputs " + at("open.npz"));
  ASSERT_EQ(open.code, 0) << open.err;
}

TEST_F(TrainCommand, cuts_a_batch_that_is_an_expression) {
  testing_io::put(folder_ / "pairs.onnxtxt", R"(<ir_version: 10, opset_import: ["": 23]>
g (float["2*pairs", 2] x) => (float["2*pairs", 2] y) <float[2,2] w = {1,2,3,4}> { y = MatMul (x, w) })");
  write_npz(at("pairs.npz"), {{"x", test::ramp({1, 8, 2})}, {"labels", test::ramp({1, 8, 2})}});
  const std::string train = "train " + at("pairs.onnxtxt") + " --data " + at("pairs.npz") +
                            " --loss mse --optimizer sgd --lr 1e-3 --steps 1 --save-final " + at("w.npz");
  const Ran whole = tessera(train);
  ASSERT_EQ(whole.code, 0) << whole.err;
  const TensorMap expected = read_npz(at("w.npz"));
  for (const char* parts : {"2", "4"}) {
    const Ran ran = tessera(train + " --mesh dp=2 --micro-batches " + parts);
    ASSERT_EQ(ran.code, 0) << ran.err;
    expect_near(expected, read_npz(at("w.npz")), 1e-4);
  }
  EXPECT_THAT(mistake(train + " --micro-batches 8"),
              HasSubstr("the batch 2*pairs cannot be 1, as each of 8 micro-batches would have"));
}

TEST_F(TrainCommand, takes_its_options_from_a_file) {
  std::ofstream(folder_ / "run.json") << R"({"data": ")" << arrays_
                                      << R"(", "steps": 3, "lr": "1e-3", "no-decay": ["vectors"], "clip": 1})";
  EXPECT_EQ(parsed("train " + gpt_ + " --config " + at("run.json")).at("losses").size(), 3u);
  EXPECT_EQ(parsed("train " + gpt_ + " --steps 2 --config " + at("run.json")).at("losses").size(), 2u) << "flags win";
  std::ofstream(folder_ / "wrong.json") << R"({"stepz": 3})";
  EXPECT_THAT(mistake("train " + gpt_ + " --config " + at("wrong.json")),
              AllOf(HasSubstr("'stepz' that is not an option"), HasSubstr("steps")));
}

TEST_F(TrainCommand, notes_each_step) {
  ASSERT_EQ(tessera("train " + gpt_ + " --data " + arrays_ + " --steps 3 --metrics " + at("m.jsonl")).code, 0);
  std::ifstream file(folder_ / "m.jsonl");
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const json step = json::parse(line);
    EXPECT_EQ(step.at("step"), lines);
    for (const char* key : {"loss", "grad_norm", "lr", "tokens_per_s", "mfu", "peak_bytes"})
      EXPECT_GT(step.at(key).get<double>(), 0) << key;
  }
  EXPECT_EQ(lines, 3);
}

TEST_F(TrainCommand, notes_each_term_of_a_loss) {
  const std::string words =
      "train " + gpt_ + " " + text() + "--steps 3 --loss cross-entropy+0.1*z-loss --held-out 0.2 --mesh fsdp=2";
  const json run = parsed(words + " --metrics " + at("terms.jsonl"));
  EXPECT_EQ(run.at("terms").at("z-loss").size(), 3u);
  std::ifstream file(folder_ / "terms.jsonl");
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const json step = json::parse(line), terms = step.at("terms");
    EXPECT_NEAR(step.at("loss").get<double>(),
                terms.at("cross-entropy").get<double>() + 0.1 * terms.at("z-loss").get<double>(), 1e-4);
  }
  EXPECT_EQ(lines, 3);
  EXPECT_GT(run.at("evaluations")[0].at("loss").get<double>(), 0);
}

TEST_F(TrainCommand, scales_the_loss_of_float16) {
  const std::string words = "train " + gpt_ + " --data " + arrays_ + " --steps 3 --mesh dp=2 ";
  ASSERT_EQ(tessera(words + "--dtype fp16 --metrics " + at("half.jsonl")).code, 0);
  std::ifstream file(folder_ / "half.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(json::parse(line).at("loss_scale"), 65536);
  const json wide = parsed(words), half = parsed(words + "--dtype fp16");
  EXPECT_TRUE(half.contains("skipped"));
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(half.at("losses")[i].get<double>(), wide.at("losses")[i].get<double>(),
                5e-3 * wide.at("losses")[i].get<double>());
}

TEST_F(TrainCommand, evaluates_with_the_same_parameters) {
  const json run = parsed("train " + gpt_ + " " + text() + "--steps 4 --eval-every 2 --held-out 0.2 --mesh fsdp=2");
  ASSERT_EQ(run.at("evaluations").size(), 2u);
  // An evaluation on the data of the next step is that step's loss.
  auto arrays = read_npz(arrays_);
  for (auto& [name, array] : arrays) {
    array.dims[0] = 1;
    array.bytes /= 20;
  }
  write_npz(folder_ / "first.npz", {arrays.begin(), arrays.end()});
  const json still =
      parsed("train " + gpt_ + " --data " + arrays_ + " --steps 2 --lr 0 --eval-data " + at("first.npz"));
  EXPECT_FLOAT_EQ(still.at("evaluations")[0].at("loss").get<float>(), still.at("losses")[0].get<float>());
}

TEST_F(TrainCommand, ends_when_the_loss_is_not_finite) {
  const Ran ran =
      tessera("train " + gpt_ + " " + text("1e30") + "--steps 9 --quiet --save-every 1 --checkpoints " + at("run"));
  EXPECT_EQ(ran.code, 3);
  EXPECT_THAT(ran.err, HasSubstr("the loss of step 2 is"));
}

// A model whose third batch has a negative number where a logarithm is taken.
TEST_F(TrainCommand, names_what_was_not_finite_first) {
  const std::string model = write_model(folder_, R"(
g (float[b, 4] x) => (float[b, 3] y) <float[4, 3] w> {
  h = Log (x)
  y = MatMul (h, w)
})")
                                .string();
  std::vector<float> x(4 * 6 * 4, 2);
  x[2 * 24 + 5] = -1;
  write_npz(folder_ / "x.npz", {{"x", Tensor::of<float>(DType::float32, {4, 6, 4}, x)},
                                {"target", Tensor::zeros(DType::float32, {4, 6, 3})}});
  for (const std::string ranks : {"", "--mesh dp=2", "--mesh fsdp=2 --spawn 2"}) {
    const std::string run = at(("run" + ranks.substr(0, ranks.find('=')) + std::to_string(ranks.size())).c_str());
    const Ran ran = tessera("train " + model + " --loss mse --labels target --save-every 1 --data " + at("x.npz") +
                            " " + ranks + " --checkpoints '" + run + "'");
    EXPECT_EQ(ran.code, 3) << ran.err;
    EXPECT_THAT(ran.err,
                AllOf(HasSubstr("the loss of step 3 is "),
                      HasSubstr("the first tensor that is not finite is 'h', of Log 'h': 1 NaN and 0 infinite"),
                      HasSubstr("'x' from -1 to 2"), HasSubstr("the last checkpoint stays")));
    EXPECT_TRUE(std::filesystem::exists(run + "/step-000002"));
    EXPECT_FALSE(std::filesystem::exists(run + "/step-000003"));
  }
}

// What begins with random numbers, but does not train, is made where the search looks at it.
TEST_F(TrainCommand, names_what_was_not_finite_beside_parameters_that_are_made) {
  const std::string model = write_model(folder_, R"(
g (float[b, 4] x) => (float[b, 3] y) <float[4, 3] w, float[3] limit> {
  h = Log (x)
  m = MatMul (h, w)
  above = GreaterOrEqual (m, limit)
  none = Constant <value = float {0}> ()
  kept = Where (above, none, m)
  y = Add (kept, m)
})")
                                .string();
  write_npz(folder_ / "x.npz", {{"x", Tensor::of<float>(DType::float32, {1, 2, 4}, std::vector<float>(8, -1))},
                                {"target", Tensor::zeros(DType::float32, {1, 2, 3})}});
  const Ran ran =
      tessera("train " + model + " --loss mse --labels target --init '*=constant:0.5' --data " + at("x.npz"));
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("the first tensor that is not finite is 'h', of Log 'h'"));
}

TEST_F(TrainCommand, stops_when_scaling_does_not_help) {
  const std::string model = write_model(folder_, R"(
g (float[b, 4] x) => (float[b, 3] y) <float[4, 3] w> {
  y = MatMul (x, w)
})")
                                .string();
  // The loss is finite, and its gradients are not.
  write_npz(folder_ / "x.npz", {{"x", Tensor::of<float>(DType::float32, {40, 2, 4}, std::vector<float>(320, 1e30F))},
                                {"target", Tensor::of<float>(DType::float32, {40, 2, 3}, std::vector<float>(240, 1))}});
  const Ran ran =
      tessera("train " + model + " --init 'w=zeros' --loss mse --labels target --loss-scale dynamic:init=16 " +
              "--data " + at("x.npz") + " --metrics " + at("m.jsonl"));
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_THAT(ran.err, AllOf(HasSubstr("the norm of the gradients of step 10 is inf"),
                             HasSubstr("after 10 skipped steps in a row")));
  EXPECT_THAT(ran.out, HasSubstr("scale 16 (skipped)"));
  std::ifstream file(folder_ / "m.jsonl");
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    EXPECT_TRUE(json::parse(line).at("skipped").get<bool>());
    EXPECT_EQ(json::parse(line).at("loss_scale").get<double>(), 16 * std::pow(0.5, lines));
  }
  EXPECT_EQ(lines, 10);
}

TEST_F(TrainCommand, keeps_runs_apart) {
  trained(text() + "--steps 2 --checkpoints " + at("run"), "a.npz");
  EXPECT_THAT(mistake("train " + gpt_ + " " + text() + "--quiet --steps 4 --checkpoints " + at("run")),
              AllOf(HasSubstr("has checkpoints of another run, the last one of step 2"), HasSubstr("--resume")));
}

TEST_F(TrainCommand, goes_on_with_the_same_data_only) {
  trained(text() + "--steps 2 --checkpoints " + at("run"), "a.npz");
  const std::string resumed = "train " + gpt_ + " --quiet --resume --steps 4 --checkpoints " + at("run") + " ";
  const std::string rest = " --clip 1 --lr 1e-3 ";
  const std::string data = "--data " + at("text.txt") + rest;
  EXPECT_THAT(mistake(resumed + data + "--batch 4 --sequence 8"), HasSubstr("--sequence is 8 and was 16"));
  EXPECT_THAT(mistake(resumed + data + "--batch 4 --sequence 16 --seed 3"), HasSubstr("--seed is 3 and was 0"));
  EXPECT_THAT(mistake(resumed + data + "--batch 4 --sequence 16 --held-out 0.1"),
              HasSubstr("--held-out is 0.1 and was 0"));
  EXPECT_THAT(mistake(resumed + data + "--batch 4 --sequence 16 --document-separator 'of'"),
              HasSubstr("--document-separator is of and was none"));
  std::ofstream(folder_ / "other.txt") << std::string(4000, 'x');
  EXPECT_THAT(mistake(resumed + "--sequence 16 --data " + at("other.txt")),
              AllOf(HasSubstr("--data is other.txt (uint8, weight 1, 4000 bytes) and was text.txt"),
                    HasSubstr("--other-data")));
  // Another batch goes on in the same order; other data are accepted if that is meant.
  EXPECT_EQ(tessera(resumed + data + "--batch 2 --sequence 16").code, 0);
  const Ran ran = tessera("train " + gpt_ + " --resume --steps 6 --other-data --sequence 16 --checkpoints " +
                          at("run") + " --data " + at("other.txt"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("other data than before: --data is other.txt"));
}

TEST_F(TrainCommand, saves_frozen_parameters_and_averages) {
  const auto whole =
      trained("--data " + arrays_ + " --steps 3 --average 0.5 --freeze '*ln_f*' --mesh fsdp=2 --save-average " +
                  at("average.npz"),
              "after.npz");
  const auto average = read_npz(at("average.npz"));
  size_t frozen = 0, averaged = 0;
  for (const auto& [name, tensor] : average) {
    frozen += name.find("ln_f") != std::string::npos;
    ASSERT_TRUE(whole.contains(name)) << name;
    const auto own = whole.find(name + ".average");
    const Tensor& expected = own == whole.end() ? whole.at(name) : own->second;
    averaged += own != whole.end();
    EXPECT_EQ(std::memcmp(tensor.data, expected.data, tensor.bytes), 0) << name;
  }
  EXPECT_GT(frozen, 0u);
  EXPECT_EQ(averaged + frozen, average.size());
  EXPECT_EQ(whole.size(), average.size() + averaged);
  EXPECT_THAT(mistake("train " + gpt_ + " --data " + arrays_ + " --quiet --save-average " + at("none.npz")),
              HasSubstr("--average 0.999"));
}

TEST_F(TrainCommand, writes_events_and_a_trace) {
  const std::string words = "train " + gpt_ + " " + text() + "--mesh dp=2 --tensorboard " + at("events") + " ";
  ASSERT_EQ(tessera(words + "--steps 12 --held-out 0.2 --eval-steps 2 --profile " + at("trace.json")).code, 0);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "events")) files.push_back(entry.path());
  ASSERT_EQ(files.size(), 1u);
  const std::string events = contents(files[0]);
  for (const char* tag :
       {"train/loss", "train/grad_norm", "train/learning_rate", "speed/tokens_per_s", "speed/mfu", "evaluation/loss"})
    EXPECT_THAT(events, HasSubstr(tag));
  const json trace = json::parse(contents(folder_ / "trace.json"));
  int losses = 0;
  for (const json& event : trace.at("traceEvents"))
    losses += event.at("ph") == "X" && event.at("tid") == 1 && event.at("cat") == "communication";
  EXPECT_GT(losses, 0) << "both ranks are in it";
}

TEST_F(TrainCommand, says_that_annotations_take_the_place_of_implied_presets) {
  const std::string words = "train " + gpt_ + " --data " + arrays_ + " --steps 1 --mesh dp=2 ";
  EXPECT_THAT(tessera(words).out, HasSubstr("preset dp:dp (implied by the mesh)"));
  EXPECT_THAT(tessera(words + "--annotate 'input_ids=[dp,-]'").out,
              HasSubstr("no preset is applied, because there are annotations; add --preset dp:dp"));
}

TEST_F(TrainCommand, lists_no_option_that_it_refuses) {
  EXPECT_THAT(tessera("train --help").out, testing::Not(HasSubstr("--state ")));
}

TEST_F(TrainCommand, computes_again_what_it_does_not_hold) {
  const TensorMap held = trained(text() + "--steps 3", "held.npz");
  expect_same_bits(held, trained(text() + "--steps 3 --recompute full --eval-data " + at("text.txt"), "full.npz"));
  expect_same_bits(held, trained(text() + "--steps 3 --mesh dp=1 --recompute auto --memory-limit 1G", "auto.npz"));
}

TEST_F(TrainCommand, refuses_what_does_not_fit_with_a_change_that_does) {
  const std::string plan = "train " + gpt_ + " --dry-run --shapes batch=64,sequence=32 ";
  const auto peak_of = [&](const std::string& words) {
    return json::parse(tessera(plan + words + " --json").out).at("process").at("peak_bytes").get<int64_t>();
  };
  const auto refusal_at = [&](int64_t limit, const std::string& words) {
    return mistake(plan + words + " --memory-limit " + std::to_string(limit));
  };
  const int64_t whole = peak_of("");
  EXPECT_THAT(tessera(plan + "--memory-limit " + std::to_string(whole)).code, 0);
  EXPECT_THAT(refusal_at(whole - 1, ""), AllOf(HasSubstr("more than the limit"), HasSubstr("; it fits with --")));
  // The change that is named does fit.
  const std::string refusal = refusal_at(whole * 2 / 3, "");
  const std::string words = " it fits with ";
  const size_t at = refusal.find(words);
  ASSERT_NE(at, std::string::npos) << refusal;
  const std::string change = refusal.substr(at + words.size(), refusal.find_last_not_of('\n') + 1 - at - words.size());
  EXPECT_EQ(tessera(plan + "--memory-limit " + std::to_string(whole * 2 / 3) + " " + change).code, 0) << change;
  EXPECT_THAT(refusal_at(1'000'000, ""), HasSubstr("needs least of what was tried"));
  EXPECT_THAT(refusal_at(peak_of("--mesh dp=4 --preset fsdp --recompute full --micro-batches 4"), "--mesh dp=4"),
              HasSubstr("; it fits with --preset="));
}

// A limit is that of a process with all of its ranks, of a plan as of a run.
TEST_F(TrainCommand, limits_the_memory_of_a_process) {
  const std::string words = "train " + gpt_ + " " + text() + "--steps 1 --bucket-bytes 0 ";
  for (const std::string asked : {"--dry-run ", "", "--spawn 2 ", "--dry-run --spawn 2 "}) {
    SCOPED_TRACE(asked);
    const int ranks = asked.ends_with("--spawn 2 ") ? 1 : 2;
    const json plan = parsed(words + asked + "--mesh dp=2");
    EXPECT_EQ(plan.at("process").at("ranks"), ranks);
    const auto bytes = plan.at("process").at("peak_bytes").get<int64_t>();
    EXPECT_NEAR(bytes, ranks * plan.at("peak_bytes").get<double>(), 1e-3 * bytes);
    const std::string limited = words + asked + "--mesh dp=2 --memory-limit ";
    const std::string refusal = mistake(limited + std::to_string(bytes * 9 / 10));
    EXPECT_THAT(refusal, HasSubstr("more than the limit of "));
    EXPECT_EQ(refusal.find("that is of a process with all of its 2 ranks") != std::string::npos, ranks > 1);
    EXPECT_EQ(tessera(limited + std::to_string(bytes + (1 << 20))).code, 0);  // what a run holds beside its plan
  }
  // No process runs so many ranks.
  EXPECT_EQ(
      parsed("train " + gpt_ + " --dry-run --shapes batch=512,sequence=8 --mesh dp=512").at("process").at("ranks"), 1);
}

// Ranks of one process share weights that do not change.
TEST_F(TrainCommand, counts_frozen_weights_once_in_a_process) {
  const std::string model = at("frozen.onnxtxt");
  std::ofstream(model) << R"(<ir_version: 10, opset_import: ["" : 22]>
g (float[b, 32] x) => (float[b, 32] y) <float[32, 32768] c, float[32768, 32] d, float[32, 32] a> {
  u = MatMul (x, c)
  t = Relu (u)
  v = MatMul (t, d)
  y = MatMul (v, a)
})";
  write_npz(folder_ / "x.npz",
            {{"x", Tensor::zeros(DType::float32, {2, 2, 32})}, {"target", Tensor::zeros(DType::float32, {2, 2, 32})}});
  const std::string words = "train " + model + " --loss mse --labels target --freeze c --freeze d --steps 2 --data " +
                            at("x.npz") + " --mesh dp=2 ";
  constexpr int64_t kBeside = 1 << 20;  // what a run holds beside its plan
  for (const std::string& asked : {std::string("--dry-run "), std::string(), "--eval-data " + at("x.npz") + " "}) {
    SCOPED_TRACE(asked);
    const json plan = parsed(words + asked);
    const auto rank = plan.at("peak_bytes").get<int64_t>();
    const auto process = plan.at("process").at("peak_bytes").get<int64_t>();
    ASSERT_LT(process + kBeside, 2 * rank);
    EXPECT_EQ(tessera(words + asked + "--quiet --memory-limit " + std::to_string(process + kBeside)).code, 0);
    EXPECT_THAT(mistake(words + asked + "--memory-limit " + std::to_string(process * 9 / 10)),
                HasSubstr("more than the limit"));
  }
}

// A checkpoint is written from copies while the next steps run, and an evaluation keeps its buffers.
TEST_F(TrainCommand, plans_what_checkpoints_and_evaluations_take) {
  const auto planned = [&](const std::string& words) {
    return json::parse(tessera("train " + gpt_ + " " + text() + "--steps 2 --bucket-bytes 0 --json " + words).out);
  };
  const std::string checkpoints = "--checkpoints " + at("run"), evaluation = " --eval-data " + at("text.txt");
  for (const std::string mesh : {"--mesh dp=1 ", "--mesh dp=2 ", "--mesh fsdp=2 "}) {
    SCOPED_TRACE(mesh);
    const json alone = planned(mesh + "--dry-run ");
    EXPECT_EQ(alone.at("memory_classes").at("checkpoints"), 0);
    EXPECT_EQ(alone.at("memory_classes").at("evaluation"), 0);
    const auto peak = alone.at("peak_bytes").get<int64_t>();
    int64_t states = 0;
    for (const char* name : {"parameters", "optimizer", "other_states"})
      states += alone.at("memory_classes").at(name).get<int64_t>();
    const json saving = planned(mesh + "--dry-run " + checkpoints);
    EXPECT_EQ(saving.at("memory_classes").at("checkpoints"), states);
    EXPECT_EQ(saving.at("peak_bytes"), peak + states);
    const json both = planned(mesh + "--dry-run " + checkpoints + evaluation);
    const auto evaluating = both.at("memory_classes").at("evaluation").get<int64_t>();
    EXPECT_GT(evaluating, 0);
    EXPECT_EQ(both.at("peak_bytes"), peak + states + evaluating);
    // A limit counts both, and a run needs what was planned.
    const auto process = both.at("process").at("peak_bytes").get<int64_t>();
    const std::string limit = " --memory-limit " + std::to_string(process);
    EXPECT_EQ(tessera("train " + gpt_ + " " + text() + "--bucket-bytes 0 --dry-run " + mesh + checkpoints + evaluation +
                      limit)
                  .code,
              0);
    const std::string less = " --memory-limit " + std::to_string(process - 1);
    EXPECT_THAT(mistake("train " + gpt_ + " " + text() + "--bucket-bytes 0 --dry-run " + mesh + checkpoints +
                        evaluation + less),
                AllOf(HasSubstr("more than the limit"), HasSubstr("since evaluations take")));
    const json ran = planned(mesh + "--quiet " + checkpoints + evaluation);
    std::filesystem::remove_all(at("run"));
    EXPECT_EQ(ran.at("memory_classes").at("checkpoints"), states);
    EXPECT_EQ(ran.at("ranks").at(0).at("peak_bytes"), ran.at("ranks").at(0).at("planned_bytes"));
  }
}

TEST_F(TrainCommand, writes_what_is_held_during_each_operation) {
  const std::string words = "train " + gpt_ + " --dry-run --shapes batch=8,sequence=32 --mesh dp=2 ";
  const json plan = json::parse(tessera(words + "--json --memory-plan " + at("plan.json")).out);
  int64_t most = 0;
  std::string last;
  for (const json& event : json::parse(contents(folder_ / "plan.json"))) {
    if (event.at("ph") != "C") {
      last = event.at("name");
      continue;
    }
    int64_t sum = 0;
    for (const auto& [name, bytes] : event.at("args").items()) {
      EXPECT_GE(bytes.get<int64_t>(), 0) << name;
      sum += bytes.get<int64_t>();
    }
    most = std::max(most, sum);
  }
  const auto peak = plan.at("peak_bytes").get<double>();
  EXPECT_NEAR(static_cast<double>(most), peak, 0.03 * peak);
  EXPECT_FALSE(last.empty());
  int64_t classes = 0;
  for (const auto& [name, bytes] : plan.at("memory_classes").items()) classes += bytes.get<int64_t>();
  EXPECT_EQ(classes, plan.at("peak_bytes").get<int64_t>());
}

TEST_F(TrainCommand, tells_of_mistakes) {
  const std::string train = "train " + gpt_ + " ";
  EXPECT_THAT(mistake(train), HasSubstr("there is no data"));
  EXPECT_THAT(mistake(train + "--data " + arrays_ + " --loss absent"), HasSubstr("there is no loss 'absent'"));
  EXPECT_THAT(mistake(train + "--data " + arrays_ + " --loss mse:x=1"), HasSubstr("'mse' has no 'x'"));
  EXPECT_THAT(mistake(train + "--data " + arrays_ + " --optimizer adamw:betta=3"), HasSubstr("its keys are beta1"));
  EXPECT_THAT(mistake(train + "--data " + arrays_ + " --lr warmup=3"), HasSubstr("no 'peak'"));
  EXPECT_THAT(mistake(train + "--data " + arrays_ + " --freeze 'xyz*'"), HasSubstr("matches no parameter"));
  EXPECT_THAT(mistake(train + "--data " + arrays_ + " --freeze '*'"), HasSubstr("all are frozen"));
  EXPECT_THAT(mistake(train + "--data " + arrays_ + " --output logitz"), HasSubstr("'logitz'"));
  EXPECT_THAT(mistake(train + "--data " + arrays_ + " --labels other"), HasSubstr("neither an input"));
  EXPECT_THAT(mistake(train + "--data " + arrays_ + " --steps 21"), HasSubstr("has 20 steps"));
  EXPECT_THAT(mistake(train + "--data " + arrays_ + " --micro-batches 3"), HasSubstr("cannot be cut into 3"));
  EXPECT_THAT(mistake(train + "--data " + arrays_ + " --resume"), HasSubstr("--checkpoints"));
  EXPECT_THAT(mistake(train + text() + "--eval-every 2 --steps 2"), HasSubstr("--eval-data or --held-out"));
  std::ofstream(folder_ / "wide.txt") << std::string(600, '\xf0');
  EXPECT_THAT(mistake(train + "--steps 2 --sequence 16 --data " + at("wide.txt")),
              AllOf(HasSubstr("wide.txt"), HasSubstr("240")));
}

}  // namespace
}  // namespace tessera

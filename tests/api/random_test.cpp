// Random numbers are the same on every mesh, in every written form, and after a restart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "api/same_bits.h"
#include "api/small_model.h"
#include "tessera/check.h"
#include "tessera/error.h"
#include "tessera/training.h"

namespace tessera::test {
namespace {

using testing::HasSubstr;

constexpr std::string_view kHeader = "<ir_version: 10, opset_import: [\"\" : 22]>\n";

// All operators; extents that no mesh divides.
constexpr std::string_view kAll = R"(
g (float[n, 15] x) => (float[n, 14] dropped, bool[n, 14] mask, float[n, 14] again, float[n, 14] uniform,
    double[n, 14] normal, float[7, 10] filled, float16[7, 10] half, bool[n, 14] coins, int64[n, 5] drawn) <float[15, 14] w> {
  ratio = Constant <value_float = 0.25> ()
  on = Constant <value = bool {1}> ()
  h = MatMul (x, w)
  dropped, mask = Dropout (h, ratio, on)
  again = Dropout (h, ratio, on)
  uniform = RandomUniformLike <low = -1.0, high = 3.0> (h)
  normal = RandomNormalLike <dtype = 11, mean = 2.0> (h)
  filled = RandomNormal <shape = [7, 10], seed = 3.0> ()
  half = RandomUniform <shape = [7, 10], dtype = 10> ()
  p = Sigmoid (h)
  coins = Bernoulli <dtype = 9> (p)
  drawn = Multinomial <dtype = 7, sample_size = 5> (h)
})";

class RandomOperators : public testing::Test {
 protected:
  Model model(std::string_view text) {
    return Model::load(write_model(folder_, std::string(kHeader) + std::string(text)));
  }
  TemporaryFolder folder_;
};

TEST_F(RandomOperators, GiveTheSameBitsOnEveryMesh) {
  const Model all = model(kAll);
  const Tensors inputs = {{"x", ramp({7, 15})}};
  const Tensors expected = Session(compile(all, Mesh::parse("dp=1")), one_thread()).run(inputs);
  for (const char* mesh : {"dp=2", "dp=3", "dp=2,tp=2", "dp=8", "tp=4"})
    for (const std::vector<std::string>& annotations :
         std::vector<std::vector<std::string>>{{"h=[dp,-]", "filled=[dp,-]", "half=[-,dp]", "drawn=[dp,-]"},
                                               {"h=[-,2*7{tp}]", "filled=[-,5*2{tp}]", "half=[tp,-]"},
                                               {"h=[-,tp]", "uniform=[-,2*7{tp}]", "filled=[tp,-]"}}) {
      SCOPED_TRACE(std::string(mesh) + " " + annotations[0]);
      const Mesh on = Mesh::parse(mesh);
      Plan plan;
      bool fits = true;
      for (const std::string& text : annotations) {
        for (const char* axis : {"dp", "tp"})
          fits &= text.find(axis) == std::string::npos || std::string(mesh).find(axis) != std::string::npos;
        plan.annotations.push_back({text});
      }
      if (!fits) continue;
      expect_same(Session(compile(all, on, plan), one_thread()).run(inputs), expected);
    }
}

TEST_F(RandomOperators, GiveTheSameBitsInWrittenForms) {
  const Model all = model(kAll);
  const Tensors inputs = {{"x", ramp({7, 15})}};
  const Tensors expected = Session(compile(all, Mesh::parse("dp=1")), one_thread()).run(inputs);
  Plan plan;
  plan.annotations = {{"h=[dp,2*7{tp}]"}, {"filled=[dp,tp]"}};
  const Program program = compile(all, Mesh::parse("dp=2,tp=2"), plan);
  for (Form form : {Form::mpmd, Form::spmd, Form::parallel_for}) {
    SCOPED_TRACE(static_cast<int>(form));
    WriteOptions options;
    options.form = form;
    program.write(folder_ / "out", options);
    const Program read = Program::read(folder_ / "out");
    EXPECT_TRUE(check_program(read).good());
    expect_same(Session(read, one_thread()).run(inputs), expected);
  }
}

TEST_F(RandomOperators, DrawFromTheirDistributions) {
  const Model large = model(R"(
g (float[n] p, float[1, 4] scores) => (float[n] uniform, float[n] normal, float[n] coins, float[n] kept, int32[1, 20000] drawn,
    float[n] other) {
  ratio = Constant <value_float = 0.25> ()
  on = Constant <value = bool {1}> ()
  uniform = RandomUniformLike <low = -1.0, high = 3.0> (p)
  normal = RandomNormalLike <mean = 2.0, scale = 0.5> (p)
  coins = Bernoulli (p)
  kept = Dropout (p, ratio, on)
  other = Dropout (p, ratio, on)
  drawn = Multinomial <sample_size = 20000> (scores)
})");
  constexpr int64_t kCount = 40000;
  Tensor p = Tensor::of(DType::float32, {kCount}, std::vector<float>(kCount, 0.3f));
  const std::vector<float> shares = {0.1f, 0.2f, 0.3f, 0.4f};
  std::vector<float> scores;
  for (float share : shares) scores.push_back(std::log(share) + 5);
  const Tensors out = Session(compile(large, Mesh::parse("dp=2")))
                          .run({{"p", p}, {"scores", Tensor::of(DType::float32, {1, 4}, scores)}});
  const auto moments = [&](const char* name) {
    double sum = 0, squares = 0;
    for (float element : out.at(name).as<float>()) {
      sum += element;
      squares += element * element;
    }
    const double mean = sum / kCount;
    return std::pair(mean, squares / kCount - mean * mean);
  };
  const auto near = [&](const char* name, double mean, double variance) {
    const auto [found, spread] = moments(name);
    EXPECT_NEAR(found, mean, 5 * std::sqrt(variance / kCount)) << name;
    EXPECT_NEAR(spread, variance, 0.05 * variance) << name;
  };
  near("uniform", 1, 16.0 / 12);
  near("normal", 2, 0.25);
  near("coins", 0.3, 0.21);
  near("kept", 0.3, 0.03);  // 0.4 with probability 3/4
  for (float element : out.at("uniform").as<float>()) ASSERT_TRUE(element >= -1 && element < 3);
  for (float element : out.at("kept").as<float>()) ASSERT_TRUE(element == 0 || std::abs(element - 0.4f) < 1e-6f);
  EXPECT_NE(std::memcmp(out.at("kept").data, out.at("other").data, out.at("kept").bytes), 0);
  std::vector<int> counts(4);
  for (int32_t drawn : out.at("drawn").as<int32_t>()) ++counts.at(drawn);
  for (size_t c = 0; c < 4; ++c)
    EXPECT_NEAR(counts[c] / 20000.0, shares[c], 5 * std::sqrt(shares[c] * (1 - shares[c]) / 20000)) << c;
}

TEST_F(RandomOperators, DropWhatTheRatioAndTheFlagSay) {
  const Model flagged = model(R"(
g (float[n] x, float r, bool on) => (float[n] y, bool[n] mask) { y, mask = Dropout (x, r, on) })");
  Session session(compile(flagged, Mesh::parse("dp=2")));
  const Tensor x = Tensor::of(DType::float32, {64}, std::vector<float>(64, 1.5f));
  const auto run = [&](float ratio, bool on) {
    Tensor flag = Tensor::zeros(DType::boolean, {});
    *reinterpret_cast<bool*>(flag.mutable_data()) = on;
    return session.run({{"x", x}, {"r", Tensor::of(DType::float32, {}, std::vector<float>{ratio})}, {"on", flag}});
  };
  for (const auto& [ratio, on] : {std::pair(0.0f, true), std::pair(0.5f, false)}) {
    const Tensors out = run(ratio, on);
    for (float element : out.at("y").as<float>()) EXPECT_EQ(element, 1.5f);
    for (uint8_t kept : out.at("mask").as<uint8_t>()) EXPECT_EQ(kept, 1);
  }
  for (float element : run(1, true).at("y").as<float>()) EXPECT_EQ(element, 0);
}

// --- training

constexpr std::string_view kTrained = R"(
g (float[8, 12] x) => (float[8, 6] y) <float[12, 18] up, float[18, 6] down> {
  ratio = Constant <value_float = 0.3> ()
  on = Constant <value = bool {1}> ()
  h = MatMul (x, up)
  a = Relu (h)
  d = Dropout (a, ratio, on)
  z = MatMul (d, down)
  y = Dropout (z, ratio, on)
})";

struct TrainingRun {
  Session session;
  std::vector<float> losses;

  explicit TrainingRun(const TrainingStep& step, const char* mesh = "dp=1", Plan plan = {})
      : session(compile(step.model, Mesh::parse(mesh), plan), one_thread()) {}

  // A model of fixed extents takes so many rows in a micro-batch.
  void steps(int count, int64_t rows = 8) {
    std::vector<int64_t> classes;
    for (int64_t row = 0; row < rows; ++row) classes.push_back(row % 6);
    const Tensors inputs = {{"x", ramp({rows, 12})}, {"labels", Tensor::of(DType::int64, {rows}, classes)}};
    for (int i = 0; i < count; ++i) losses.push_back(session.run(inputs).at("loss").as<float>()[0]);
  }
};

Training with_seed(uint64_t seed) {
  Training training;
  training.learning_rate = "1e-2";
  training.seed = seed;
  return training;
}

class RandomTraining : public RandomOperators {};

TEST_F(RandomTraining, HasTheSameCurveOnEveryMesh) {
  for (int parts : {1, 2}) {
    Training training = with_seed(5);
    training.micro_batches = parts;
    training.init = {{"*", "normal:0.2"}};
    const TrainingStep step = training_step(model(kTrained), training);
    TrainingRun alone(step);
    alone.steps(10, 8 * parts);
    for (const auto& [mesh, presets, store] :
         {std::tuple("dp=2", "dp", ""), std::tuple("tp=2", "megatron", ""), std::tuple("dp=3", "dp", ""),
          std::tuple("dp=2", "dp", "*=[dp,...]"), std::tuple("dp=2,tp=2", "dp+megatron", "")}) {
      SCOPED_TRACE(std::string(mesh) + " " + presets + " " + store);
      Plan plan;
      plan.presets = presets;
      if (*store) plan.storage = {{store}};
      TrainingRun split(step, mesh, plan);
      split.steps(10, 8 * parts);
      for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(split.losses[i], alone.losses[i], 1e-5) << i;
    }
  }
}

// With a rate of 0 only what is dropped differs from step to step.
TEST_F(RandomTraining, DropsOtherElementsInEachStepAndSeed) {
  Training training = with_seed(1);
  training.learning_rate = "0";
  TrainingRun first(training_step(model(kTrained), training)), same(training_step(model(kTrained), training));
  training.seed = 2;
  TrainingRun other(training_step(model(kTrained), training));
  for (TrainingRun* run : {&first, &same, &other}) run->steps(4);
  EXPECT_EQ(first.losses, same.losses);
  EXPECT_NE(first.losses, other.losses);
  for (size_t i = 1; i < 4; ++i) EXPECT_NE(first.losses[i], first.losses[0]);
}

TEST_F(RandomTraining, GoesOnFromACheckpointAsIfItHadNotStopped) {
  const TrainingStep step = training_step(model(kTrained), with_seed(1));
  TrainingRun whole(step), begun(step), resumed(step, "dp=2");
  whole.steps(10);
  begun.steps(5);
  Checkpoints checkpoints(folder_ / "saved", 0);
  CheckpointFacts facts;
  facts.step = 5;
  EXPECT_EQ(checkpoints.save(begun.session, facts), "");
  EXPECT_EQ(checkpoints.finish(), "");
  Checkpoints::load(resumed.session, *Checkpoints::latest(folder_ / "saved"));
  resumed.steps(5);
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(resumed.losses[i], whole.losses[5 + i], 1e-5) << i;
}

// Its gradient drops what it dropped: the loss falls by what the gradient's norm predicts.
TEST_F(RandomTraining, GradientsAreThoseOfTheSameMask) {
  Training training = with_seed(9);
  training.optimizer = "sgd";
  training.learning_rates = {1e-3f, 0};
  const TrainingStep step = training_step(model(kTrained), training);
  Session session(compile(step.model, Mesh::parse("dp=1")), one_thread());
  EXPECT_GT(step.parameters.size(), 0u);
  const Tensor labels = Tensor::of(DType::int64, {8}, std::vector<int64_t>{0, 1, 2, 3, 4, 5, 0, 1});
  const Tensors inputs = {{"x", ramp({8, 12})}, {"labels", labels}};
  const Tensors before = session.run(inputs);
  // The same step once more, from the stepped parameters: the counter goes back.
  Tensors states = session.states();
  states["train.step"] = Tensor::of(DType::int64, {}, std::vector<int64_t>{0});
  session.set_states(states);
  const Tensors after = session.run(inputs);
  const double norm = before.at("grad_norm").as<float>()[0];
  const double fall = before.at("loss").as<float>()[0] - after.at("loss").as<float>()[0];
  EXPECT_GT(norm, 0.01);
  EXPECT_NEAR(fall, 1e-3 * norm * norm, 0.1 * 1e-3 * norm * norm);
}

TEST_F(RandomTraining, DropoutIsAsTheModelSaysUnlessSaidOtherwise) {
  const std::string idle = R"(
g (float[8, 12] x) => (float[8, 6] y) <float[12, 6] w> { ratio = Constant <value_float = 0.3> () h = MatMul (x, w)
  y = Dropout (h, ratio) })";
  const auto losses = [&](std::string_view text, const char* dropout, bool noted) {
    Training training = with_seed(1);
    training.learning_rate = "0";
    training.dropout = dropout;
    const TrainingStep step = training_step(model(text), training);
    EXPECT_EQ(step.notes.empty(), !noted);
    TrainingRun run(step);
    run.steps(2);
    return run.losses;
  };
  const auto stays = [](const std::vector<float>& all) { return all[0] == all[1]; };
  EXPECT_TRUE(stays(losses(idle, "model", true)));
  EXPECT_TRUE(stays(losses(idle, "off", false)));
  EXPECT_FALSE(stays(losses(idle, "on", false)));
  EXPECT_FALSE(stays(losses(kTrained, "model", false)));
  EXPECT_TRUE(stays(losses(kTrained, "off", false)));
  EXPECT_THAT([&] { losses(kTrained, "maybe", false); }, testing::ThrowsMessage<Error>(HasSubstr("'on' or 'off'")));
}

TEST_F(RandomTraining, ParametersBeginAsRulesSay) {
  Training training = with_seed(4);
  training.init = {{"up", "xavier"}, {"*", "constant:0.5"}};
  TrainingRun run(training_step(model(kTrained), training), "dp=2");
  const Tensors states = run.session.states();
  double sum = 0, squares = 0;
  const double bound = std::sqrt(6.0 / (12 + 18));
  for (float element : states.at("up").as<float>()) {
    EXPECT_LT(std::abs(element), bound);
    sum += element;
    squares += element * element;
  }
  EXPECT_NEAR(squares / (12 * 18), bound * bound / 3, 0.25 * bound * bound / 3);
  EXPECT_NEAR(sum / (12 * 18), 0, 5 * bound / std::sqrt(3 * 12 * 18));
  for (float element : states.at("down").as<float>()) EXPECT_EQ(element, 0.5f);
  training.init = {{"gone*", "zeros"}};
  EXPECT_THAT([&] { training_step(model(kTrained), training); },
              testing::ThrowsMessage<Error>(HasSubstr("matches no parameter")));
  training.init = {{"*", "gauss:1"}};
  EXPECT_THAT([&] { training_step(model(kTrained), training); },
              testing::ThrowsMessage<Error>(HasSubstr("the rules are")));
}

}  // namespace
}  // namespace tessera::test

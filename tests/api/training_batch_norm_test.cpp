// Batch normalizations in training form: PyTorch's gradients, the statistics of the whole batch on any mesh, and
// running ones that step, are saved, and are what an evaluation uses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/trained_on_meshes.h"
#include "tessera/base/error.h"

namespace tessera::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

// Eighths between -5/8 and 5/8.
std::vector<float> eighths(int64_t count, int64_t which) {
  std::vector<float> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(static_cast<float>((i * 7 + which * 5) % 11 - 5) / 8);
  return all;
}

std::vector<float> above_zero(int64_t count, int64_t which) {
  std::vector<float> all = eighths(count, which);
  for (float& element : all) element = 1 + element / 4;
  return all;
}

class BatchNorm : public testing::Test, protected SmallModels {
 protected:
  Model normalized(const std::string& attributes = "") {
    return model(
        "g (float[b, 3, 2] x) => (float[b, 3, 2] y) <\n"
        "    float[2, 2] w, float[3] scale, float[3] shift, float[3] mean, float[3] variance> {\n"
        "  u = MatMul (x, w)\n  y = BatchNormalization " +
        attributes + " (u, scale, shift, mean, variance)\n}");
  }
  static Training training(const std::string& batch_norm) {
    Training training;
    training.loss = "mse";
    training.labels = "target";
    training.optimizer = "sgd";
    training.learning_rate = "0.1";
    training.batch_norm = batch_norm;
    return training;
  }
  static Tensors start() {
    return {{"w", floats({2, 2}, eighths(4, 3))},
            {"scale", floats({3}, above_zero(3, 4))},
            {"shift", floats({3}, eighths(3, 5))},
            {"mean", floats({3}, eighths(3, 6))},
            {"variance", floats({3}, above_zero(3, 7))}};
  }
  static Tensors batch(int64_t rows = 4) {
    return {{"x", floats({rows, 3, 2}, eighths(rows * 6, 1))}, {"target", floats({rows, 3, 2}, eighths(rows * 6, 2))}};
  }
  // With the values that the reference has.
  Session started(const Model& model, const Training& training, const Layout& layout) {
    Session session(program_of(model, training, layout), one_thread());
    session.set_states(start());
    return session;
  }
  static void expect_floats(const Tensor& made, const std::vector<float>& wanted, const std::string& name) {
    const auto elements = made.as<float>();
    ASSERT_EQ(elements.size(), wanted.size()) << name;
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(elements[i], wanted[i], 2e-6) << name << " " << i;
  }
};

// torch.nn.functional.batch_norm in float64; the running variance moves toward the population's, as ONNX has it.
TEST_F(BatchNorm, GivesThePyTorchsGradients) {
  for (const Layout& layout : {Layout{"dp=1", ""}, {"dp=2", ""}, {"tp=3", ""}, {"fsdp=2", ""}, {"dp=2,tp=2", ""}}) {
    SCOPED_TRACE(layout.mesh);
    Session session = started(normalized("<training_mode = 1>"), training("model"), layout);
    const Trained made = run_steps(session, {batch()});
    EXPECT_NEAR(made.losses[0], 1.39030480, 1e-6);
    expect_floats(made.first_gradients.at("w"), {0.4665161F, -0.2560989F, -0.01088858F, 0.3933185F}, "w");
    expect_floats(made.first_gradients.at("scale"), {0.6599878F, 0.6971008F, 0.7572866F}, "scale");
    expect_floats(made.first_gradients.at("shift"), {-0.1666667F, 0.3958333F, 0.04166667F}, "shift");
    expect_floats(made.states.at("mean"), {0.3386719F, -0.1125F, -0.5636719F}, "mean");
    expect_floats(made.states.at("variance"), {0.8195969F, 1.014697F, 0.9034592F}, "variance");
  }
}

TEST_F(BatchNorm, HasTheStatisticsOfTheWholeBatchOnAnyMesh) {
  const Model model = normalized();
  std::vector<Tensors> batches;
  for (int i = 0; i < 4; ++i)
    batches.push_back({{"x", scattered({6, 3, 2}, i + 1)}, {"target", scattered({6, 3, 2}, i + 9)}});
  for (const int micro_batches : {1, 2}) {
    Training trains = training("train");
    trains.sizes = {{"b", 6}};
    trains.micro_batches = micro_batches;
    trains.init = {{"*", "uniform:0.5,1.5"}};
    const Trained wanted = train(model, trains, {"dp=1", ""}, batches);
    for (const Layout& layout : all_layouts()) {
      SCOPED_TRACE(layout.mesh + " " + layout.presets + " " + std::to_string(micro_batches));
      const Trained made = train(model, trains, layout, batches);
      EXPECT_NEAR(made.losses.back(), wanted.losses.back(), 1e-5 * wanted.losses.back());
      for (const char* name : {"mean", "variance", "w", "scale"})
        expect_near(made.states.at(name), wanted.states.at(name), name);
    }
  }
}

// Each part of a batch moves the running statistics, one after the other.
TEST_F(BatchNorm, MovesItsStatisticsOncePerMicroBatch) {
  const Model model = this->model(R"(
g (float[b, 1] x) => (float[b, 1] y) <float[1] scale, float[1] shift, float[1] mean, float[1] variance> {
  y = BatchNormalization <momentum = 0.5> (x, scale, shift, mean, variance)
})");
  Training trains = training("train");
  trains.sizes = {{"b", 4}};
  trains.micro_batches = 2;
  Session session(program_of(model, trains, {"dp=1", ""}), one_thread());
  session.set_states({{"mean", floats({1}, {8})}, {"variance", floats({1}, {16})}});
  // Rows 0 and 2 are the first part, rows 1 and 3 the second.
  session.run({{"x", floats({4, 1}, {1, 10, 3, 30})}, {"target", floats({4, 1}, {0, 0, 0, 0})}});
  const Tensors states = session.states();
  EXPECT_THAT(states.at("mean").as<float>(), ElementsAre(((8 + 2) / 2.0F + 20) / 2));
  EXPECT_THAT(states.at("variance").as<float>(), ElementsAre(((16 + 1) / 2.0F + 100) / 2));
}

TEST_F(BatchNorm, EvaluatesWithTheRunningStatistics) {
  const Model model = normalized("<training_mode = 1>");
  const Training trains = training("model");
  const TrainingStep step = training_step(model, trains);
  EXPECT_THAT(step.statistics, UnorderedElementsAre("mean", "variance"));
  EXPECT_THAT(step.parameters, UnorderedElementsAre("w", "scale", "shift"));
  Session session(compile(step.model, Mesh::parse("dp=2")), one_thread());
  SessionOptions shares = one_thread();
  shares.share_states = &session;
  Session evaluation(compile(tessera::evaluation(model, trains), Mesh::parse("dp=2")), shares);
  session.set_states(start());
  for (int i = 0; i < 3; ++i) session.run(batch());
  Tensors now;
  const Tensors states = session.states();
  for (const auto& [name, state] : start()) now.emplace(name, states.at(name));
  const TrainingStep stands = training_step(normalized(), training("frozen"));
  EXPECT_TRUE(stands.statistics.empty());
  EXPECT_TRUE(stands.frozen.contains("mean"));
  Session alone(compile(tessera::evaluation(model, trains), Mesh()), one_thread());
  alone.set_states(now);
  EXPECT_NEAR(evaluation.run(batch(2)).at("loss").as<float>()[0], alone.run(batch(2)).at("loss").as<float>()[0], 1e-6);
  // It normalizes rows of their own: another batch beside them changes nothing.
  double rows = 0;
  for (int64_t first : {0, 1}) {
    Tensors one = batch(2);
    for (auto& [name, tensor] : one) {
      const auto all = tensor.as<float>();
      tensor = floats({1, 3, 2}, {all.begin() + first * 6, all.begin() + first * 6 + 6});
    }
    rows += alone.run(one).at("loss").as<float>()[0] / 2;
  }
  EXPECT_NEAR(alone.run(batch(2)).at("loss").as<float>()[0], rows, 1e-6);
}

TEST_F(BatchNorm, IsRefusedWhereItCannotTrain) {
  const auto refusal = [](const Model& model, const Training& training) {
    try {
      training_step(model, training);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  Training narrow = training("train");
  narrow.compute = DType::bfloat16;
  EXPECT_THAT(refusal(normalized(), narrow), HasSubstr("`batch_norm=frozen`"));
  narrow.batch_norm = "frozen";
  EXPECT_EQ(refusal(normalized("<training_mode = 1>"), narrow), "accepted");
  const Model without = model("g (float[b, 3] x) => (float[b, 3] y) <float[3, 3] w> {\n  y = MatMul (x, w)\n}");
  EXPECT_THAT(refusal(without, training("train")), HasSubstr("has no BatchNormalization"));
  EXPECT_THAT(refusal(normalized(), training("sometimes")), HasSubstr("'train' or 'frozen'"));
  const Model shared = model(R"(
g (float[b, 3] x) => (float[b, 3] y) <float[3] scale, float[3] shift, float[3] mean, float[3] variance> {
  u = BatchNormalization (x, scale, shift, mean, variance)
  t = Tanh (u)
  y = BatchNormalization (t, scale, shift, mean, variance)
})");
  EXPECT_THAT(refusal(shared, training("train")), HasSubstr("share the running statistics 'mean'"));
}

}  // namespace
}  // namespace tessera::test

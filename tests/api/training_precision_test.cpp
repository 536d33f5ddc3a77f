// Training in 16-bit floats: its curve is that of float32 up to the type's tolerance, and float16 scales its loss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/trained_on_meshes.h"
#include "tessera/ir/tolerance.h"

namespace tessera::test {
namespace {

class Precision : public testing::TestWithParam<DType>, protected SmallModels {
 protected:
  static const std::vector<Layout>& layouts() {
    static const std::vector<Layout> all = {
        {"dp=1", ""}, {"dp=2", ""}, {"tp=2", ""}, {"fsdp=2,tp=2", ""}, {"tp=3", "megatron+sequence"}};
    return all;
  }

  Model classifier() {
    return model(R"(
g (int64[b, s] ids) => (float[b, s, 17] logits) <
    float[17, 24] embed, float[24] scale, float[24] shift, float[24, 48] up, float[48] bias, float[48, 24] down,
    float[24, 17] head> {
  x = Gather (embed, ids)
  n = LayerNormalization <axis = -1> (x, scale, shift)
  u = MatMul (n, up)
  ub = Add (u, bias)
  a = Gelu (ub)
  d = MatMul (a, down)
  r = Add (x, d)
  logits = MatMul (r, head)
})");
  }

  static std::vector<Tensors> batches() {
    std::vector<Tensors> all;
    for (int i = 0; i < 6; ++i)
      all.push_back({{"ids", classes({8, 6}, 17, i)}, {"labels", classes({8, 6}, 17, i + 3)}});
    return all;
  }
};

TEST_P(Precision, TheCurveIsThatOfFloat32) {
  const Model model = classifier();
  Training training;
  training.clip = 1;
  training.learning_rate = "1e-2";
  const Trained wide = train(model, training, {"dp=1", ""}, batches());
  ASSERT_LT(wide.losses.back(), 0.9 * wide.losses.front());
  training.compute = GetParam();
  const double tolerance = tolerance_of(GetParam()).relative;
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.mesh + " " + layout.presets);
    const Trained made = train(model, training, layout, batches());
    for (size_t i = 0; i < wide.losses.size(); ++i) {
      EXPECT_NEAR(made.losses[i], wide.losses[i], tolerance * wide.losses[i]) << "step " << i;
      EXPECT_NEAR(made.norms[i], wide.norms[i], 2 * tolerance * wide.norms[i]) << "step " << i;
    }
    EXPECT_NE(made.losses, wide.losses) << "it has computed in float32";
  }
}

TEST_P(Precision, MicroBatchesGiveTheCurveOfTheBatch) {
  const Model model = classifier();
  Training training;
  training.compute = GetParam();
  training.sizes = {{"b", 8}, {"s", 6}};
  const Trained whole = train(model, training, {"dp=1", ""}, batches());
  training.micro_batches = 4;
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.mesh + " " + layout.presets);
    const Trained made = train(model, training, layout, batches());
    for (size_t i = 0; i < whole.losses.size(); ++i)
      EXPECT_NEAR(made.losses[i], whole.losses[i], tolerance_of(GetParam()).relative * whole.losses[i]) << i;
  }
}

// The sums of both passes over tp move half the bytes; gradients of weights over dp, and norms, are float32 anyhow.
TEST_P(Precision, RanksAddUpPartsOfTheOperandsTypeIfTheyAreTold) {
  const Model model = classifier();
  Training training;
  training.learning_rate = "1e-2";
  training.sizes = {{"b", 8}, {"s", 6}};
  const Trained wide = train(model, training, {"dp=1", ""}, batches());
  training.compute = GetParam();
  const TrainingStep step = training_step(model, training);
  const auto program = [&](const std::string& presets, const std::string& sums) {
    Plan plan;
    plan.presets = presets;
    plan.partial_sums = sums;
    return compile(step.model, Mesh::parse(presets == "dp" ? "dp=2" : "tp=2"), plan);
  };
  const auto moved = [](const Program& program) {
    std::map<std::string, int64_t> bytes;
    for (const ReshardSummary& each : program.summary().reshards) bytes[each.tensor] += each.bytes;
    return bytes;
  };
  for (const std::string presets : {"megatron", "megatron+sequence"}) {
    SCOPED_TRACE(presets);
    const auto in_float32 = moved(program(presets, "float32")), narrow = moved(program(presets, "operands"));
    EXPECT_EQ(moved(program(presets, "")), in_float32);
    EXPECT_EQ(narrow.at("d"), in_float32.at("d") / 2);
    Session session(program(presets, "operands"), one_thread());
    const double tolerance = tolerance_of(GetParam()).relative;
    const Trained made = run_steps(session, batches());
    for (size_t i = 0; i < wide.losses.size(); ++i)
      EXPECT_NEAR(made.losses[i], wide.losses[i], tolerance * wide.losses[i]) << "step " << i;
  }
  EXPECT_EQ(moved(program("dp", "operands")), moved(program("dp", "float32")));
  EXPECT_THROW(program("dp", "int8"), Error);
}

INSTANTIATE_TEST_SUITE_P(Training, Precision, testing::Values(DType::bfloat16, DType::float16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

class HalfPrecision : public testing::Test, protected SmallModels {};

TEST_F(HalfPrecision, ScalesItsLossUnlessItIsTold) {
  const Model model = this->model("g (float[4, 6] x) => (float[4, 5] y) <float[6, 5] w> {\n  y = MatMul (x, w)\n}");
  const auto scale_of = [&](DType type, const std::string& scale) -> std::optional<float> {
    Training training;
    training.loss = "mse";
    training.compute = type;
    training.loss_scale = scale;
    const Tensors states = Session(program_of(model, training, {"dp=1", ""}), one_thread()).states();
    const auto found = states.find("train.loss_scale");
    return found == states.end() ? std::nullopt : std::optional(found->second.as<float>()[0]);
  };
  EXPECT_EQ(scale_of(DType::float16, ""), 65536);
  EXPECT_EQ(scale_of(DType::float16, "dynamic:init=8"), 8);
  EXPECT_EQ(scale_of(DType::float16, "128"), std::nullopt);
  EXPECT_EQ(scale_of(DType::bfloat16, ""), std::nullopt);
  EXPECT_EQ(scale_of(DType::float32, ""), std::nullopt);
}

// A stored weight is cast where it is stored: a rank gathers 16 bits for each use, and keeps no whole weight from the
// forward to the backward pass. Heads cut the dimension finer than, as fine as, and coarser than storage does.
TEST_F(HalfPrecision, GathersStoredWeightsIn16Bits) {
  const Model model = this->model(R"(
g (int64[b, s] ids) => (float[b, s, 64] logits) <
    float[64, 64] embed, float[64] scale, float[64, 64] wq, float[64, 64] wk, float[64, 64] wv, float[64, 64] wo,
    float[64, 256] up, float[256] bias, float[256, 64] down, float[64, 64] head> {
  x = Gather (embed, ids)
  n = RMSNormalization <axis = -1> (x, scale)
  q = MatMul (n, wq)
  k = MatMul (n, wk)
  v = MatMul (n, wv)
  a = Attention <is_causal = 1, q_num_heads = 4, kv_num_heads = 4> (q, k, v)
  o = MatMul (a, wo)
  r = Add (x, o)
  u = MatMul (r, up)
  ub = Add (u, bias)
  g = Gelu (ub)
  d = MatMul (g, down)
  y = Add (r, d)
  logits = MatMul (y, head)
})");
  for (const char* mesh : {"fsdp=2", "fsdp=8", "fsdp=8,tp=2"}) {
    SCOPED_TRACE(mesh);
    const auto program = [&](DType type) {
      Training training;
      training.compute = type;
      training.sizes = {{"b", 32}, {"s", 4}};
      return compile(training_step(model, training).model, Mesh::parse(mesh), Plan{});
    };
    const auto gathered = [](const Program& program) {
      int64_t bytes = 0;
      for (const CollectiveSummary& each : program.summary().collectives)
        if (each.kind == "all_gather") bytes += each.bytes;
      return bytes;
    };
    const Program wide = program(DType::float32), narrow = program(DType::bfloat16);
    EXPECT_LE(gathered(narrow), 0.52 * static_cast<double>(gathered(wide)));
  }
}

// A rank of stored weights holds nothing whole from one micro-batch to the next: neither weights, nor their transposes,
// nor sums of gradients. So parts of a batch need less memory than the batch.
TEST_F(HalfPrecision, MicroBatchesOfStoredWeightsNeedLessMemory) {
  const Model model = this->model(R"(
g (int64[b, s] ids) => (float[b, s, 64] logits) <
    float[64, 256] embed, float[256, 1024] up0, float[1024, 256] down0, float[256, 1024] up1, float[1024, 256] down1,
    float[256, 64] head> {
  x0 = Gather (embed, ids)
  u0 = MatMul (x0, up0)
  g0 = Gelu (u0)
  d0 = MatMul (g0, down0)
  x1 = Add (x0, d0)
  u1 = MatMul (x1, up1)
  g1 = Gelu (u1)
  d1 = MatMul (g1, down1)
  x2 = Add (x1, d1)
  logits = MatMul (x2, head)
})");
  const std::vector<std::pair<std::string, DType>> cases = {
      {"fsdp=8", DType::bfloat16}, {"fsdp=4,tp=2", DType::float16}, {"dp=2,fsdp=4", DType::float32}};
  for (const auto& [mesh, type] : cases) {
    SCOPED_TRACE(mesh);
    const auto peak = [&, mesh = mesh, type = type](int micro_batches, std::vector<std::string> kept) {
      Training training;
      training.compute = type;
      training.micro_batches = micro_batches;
      training.sizes = {{"b", 64}, {"s", 64}};
      Plan plan;
      plan.keep_gathered = std::move(kept);
      return compile(training_step(model, training).model, Mesh::parse(mesh), plan).figures(0).peak_bytes;
    };
    const int64_t parts = peak(4, {});
    EXPECT_LT(parts, 0.75 * static_cast<double>(peak(1, {})));
    EXPECT_LT(parts, 0.9 * static_cast<double>(peak(4, {"*"})));
  }
}

// Gradients that float16 would round to 0 arrive, since the loss is scaled.
TEST_F(HalfPrecision, SmallGradientsArrive) {
  const Model model = this->model("g (float[2, 6] x) => (float[2, 5] y) <float[6, 5] w> {\n  y = MatMul (x, w)\n}");
  Training training;
  training.loss = "1e-6*mse";
  training.labels = "target";
  training.optimizer = "sgd";
  const std::vector<Tensors> batches = {{{"x", scattered({2, 6}, 1, 0.01F)}, {"target", scattered({2, 5}, 2)}}};
  const Trained wide = train(model, training, {"dp=1", ""}, batches);
  training.compute = DType::float16;
  const Trained scaled = train(model, training, {"dp=1", ""}, batches);
  training.loss_scale = "1";
  const Trained plain = train(model, training, {"dp=1", ""}, batches);
  EXPECT_NEAR(scaled.norms[0], wide.norms[0], tolerance_of(DType::float16).relative * wide.norms[0]);
  EXPECT_GT(std::abs(plain.norms[0] - wide.norms[0]), 0.01 * wide.norms[0]);
}

// The gradient of a weight that is read in parts, or through a mask, is made in float32: 2051 has no 16-bit form.
TEST_F(HalfPrecision, GradientsOfWeightsAreNotRoundedOnTheirWay) {
  const std::map<std::string, std::string> readings = {
      {"whole", "  y = MatMul (x, w)\n"},
      {"split",
       "  a, c = Split <axis = 1, num_outputs = 2> (w)\n  p = MatMul (x, a)\n  q = MatMul (x, c)\n"
       "  y = Concat <axis = 1> (p, q)\n"},
      {"sliced",
       "  zero = Constant <value = int64[1] {0}> ()\n  two = Constant <value = int64[1] {2}> ()\n"
       "  four = Constant <value = int64[1] {4}> ()\n  one = Constant <value = int64[1] {1}> ()\n"
       "  a = Slice (w, zero, two, one)\n  c = Slice (w, two, four, one)\n  p = MatMul (x, a)\n"
       "  q = MatMul (x, c)\n  y = Concat <axis = 1> (p, q)\n"},
      {"turned", "  t = Transpose (w)\n  z = Transpose (t)\n  y = MatMul (x, z)\n"},
      {"masked",
       "  open = Constant <value = bool[4] {1, 1, 1, 1}> ()\n  none = Constant <value = float {0}> ()\n"
       "  m = Where (open, w, none)\n  y = MatMul (x, m)\n"},
  };
  for (const auto& [name, nodes] : readings) {
    SCOPED_TRACE(name);
    const Model model = this->model("g (float[b, 1] x) => (float[b, 4] y) <float[1, 4] w> {\n" + nodes + "}");
    Training training;
    training.loss = "mean";
    training.optimizer = "sgd";
    training.learning_rate = "4";
    training.init = {{"w", "zeros"}};
    training.loss_scale = "1";
    for (const DType type : {DType::float16, DType::bfloat16}) {
      training.compute = type;
      // The mean's slope is 1/8 for each of 2 rows, and the rate takes its 4: w falls by (x0 + x1)·4/8.
      Session session(program_of(model, training, {"dp=1", ""}), one_thread());
      session.run({{"x", floats({2, 1}, {2048, 6})}});
      const Tensor after = session.states().at("w");
      for (float element : after.as<float>()) EXPECT_EQ(element, -(2048 + 6) / 2.0F);
    }
  }
}

TEST_F(HalfPrecision, AScaleStaysFinite) {
  const Model model = this->model("g (float[4, 6] x) => (float[4, 5] y) <float[6, 5] w> {\n  y = MatMul (x, w)\n}");
  Training training;
  training.loss = "mean";
  training.init = {{"w", "zeros"}};
  training.loss_scale = "dynamic:init=1e38,interval=1";
  Session session(program_of(model, training, {"dp=1", ""}), one_thread());
  for (int i = 0; i < 4; ++i) session.run({{"x", floats({4, 6}, std::vector<float>(24, 1e-30F))}});
  EXPECT_EQ(session.states().at("train.loss_scale").as<float>()[0], 1e38F);
}

TEST_F(HalfPrecision, AnOverflowOnOneRankSkipsTheStepOnAll) {
  const Model model = this->model(R"(
g (float[6, 6] x) => (float[6, 4] y) <float[6, 6] first, float[6, 4] last> {
  h = MatMul (x, first)
  y = MatMul (h, last)
})");
  Training training;
  training.loss = "mse";
  training.labels = "target";
  training.optimizer = "adam";
  training.compute = DType::float16;
  training.loss_scale = "dynamic:init=1024,interval=1";
  const Tensors good = {{"x", scattered({6, 6}, 1)}, {"target", scattered({6, 4}, 2)}};
  // One element of one sample: its gradient is beyond 65504, and the loss is not.
  Tensors bad = good;
  std::vector<float> target(good.at("target").as<float>().begin(), good.at("target").as<float>().end());
  target[5 * 4 + 3] = 3000;
  bad.at("target") = floats({6, 4}, target);
  std::vector<Layout> layouts = all_layouts();
  layouts.push_back({"dp=1", ""});
  layouts.push_back({"fsdp=2,tp=2", ""});
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.mesh + " " + layout.presets);
    Session session(program_of(model, training, layout), one_thread());
    Tensors before = session.states();
    const Tensors outputs = session.run(bad);
    EXPECT_TRUE(std::isfinite(outputs.at("loss").as<float>()[0]));
    EXPECT_FALSE(std::isfinite(outputs.at("grad_norm").as<float>()[0]));
    Tensors after = session.states();
    EXPECT_EQ(after.at("train.loss_scale").as<float>()[0], 512);
    after.erase("train.loss_scale"), before.erase("train.loss_scale");
    expect_same(after, before);
    session.run(good);
    after = session.states();
    EXPECT_EQ(after.at("train.loss_scale").as<float>()[0], 1024);
    EXPECT_EQ(after.at("train.step").as<int64_t>()[0], 1);
  }
}

}  // namespace
}  // namespace tessera::test

// Pipelines: stages on different ranks, in the order of a table, give what one rank gives, to the last bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "api/trained_on_meshes.h"
#include "error_of.h"
#include "plan/deep_model.h"
#include "tessera/pipeline.h"
#include "tessera/time.h"

namespace tessera::test {
namespace {

using testing::HasSubstr;

// Embeddings that the head reads, too; blocks with residuals; a mask that all blocks read.
constexpr std::string_view kBlocks = R"(
blocks (int64[b, s] ids, float[b, s] scale) => (float[b, s, 17] logits)
  <float[17, 8] embed, float[8, 8] w0, float[8, 8] w1, float[8, 8] w2, float[8, 8] w3, float[8, 8] w4,
   float[8] g0, float[8] g2> {
  two = Constant <value = int64[1] {2}> ()
  mask0 = Unsqueeze (scale, two)
  mask = Tanh (mask0)
  h0 = Gather (embed, ids)
  a0 = MatMul (h0, w0)
  b0 = Mul (a0, mask)
  c0 = Mul (b0, g0)
  t0 = Tanh (c0)
  h1 = Add (h0, t0)
  a1 = MatMul (h1, w1)
  b1 = Mul (a1, mask)
  t1 = Tanh (b1)
  h2 = Add (h1, t1)
  a2 = MatMul (h2, w2)
  b2 = Mul (a2, mask)
  c2 = Mul (b2, g2)
  t2 = Tanh (c2)
  h3 = Add (h2, t2)
  a3 = MatMul (h3, w3)
  t3 = Tanh (a3)
  h4 = Add (h3, t3)
  a4 = MatMul (h4, w4)
  t4 = Tanh (a4)
  h5 = Add (h4, t4)
  head = Transpose <perm = [1, 0]> (embed)
  logits = MatMul (h5, head)
})";

std::vector<Tensors> batches(int count, int64_t rows) {
  std::vector<Tensors> made;
  for (int i = 0; i < count; ++i)
    made.push_back({{"ids", classes({rows, 6}, 17, 3 * i)},
                    {"scale", scattered({rows, 6}, 7 * i + 1)},
                    {"labels", classes({rows, 6}, 17, 3 * i + 1)}});
  return made;
}

void expect_same_training(const Trained& made, const Trained& wanted) {
  EXPECT_EQ(made.losses, wanted.losses);
  EXPECT_EQ(made.norms, wanted.norms);
  expect_same(made.first_gradients, wanted.first_gradients);
  expect_same(made.states, wanted.states);
}

class Pipelines : public testing::Test, protected SmallModels {
 protected:
  static Training training(int64_t micro_batches, int64_t rows) {
    Training made;
    made.optimizer = "adamw";
    made.learning_rate = "0.01";
    made.clip = 0.5;
    made.micro_batches = static_cast<int>(micro_batches);
    made.sizes = {{"b", rows}, {"s", 6}};
    return made;
  }

  static Program compiled(const Model& model, const Training& training, const std::string& mesh,
                          const std::string& schedule, const std::string& stages = "", const std::string& presets = "",
                          const std::string& recompute = "") {
    const TrainingStep step = training_step(model, training);
    std::vector<std::string> outputs;
    for (const TensorInfo& output : step.model.outputs()) outputs.push_back(output.name);
    for (const std::string& parameter : step.parameters) outputs.push_back("grad." + parameter);
    Plan plan;
    plan.presets = presets;
    plan.pipeline = schedule;
    plan.stages = stages;
    plan.recompute = recompute;
    return compile(step.model.with_outputs(outputs), Mesh::parse(mesh), plan);
  }

  static Trained train_pipelined(const Model& model, const Training& training, const std::string& mesh,
                                 const std::string& schedule, const std::string& stages,
                                 const std::vector<Tensors>& steps, const std::string& presets = "",
                                 const std::string& recompute = "") {
    Session session(compiled(model, training, mesh, schedule, stages, presets, recompute), one_thread());
    return run_steps(session, steps);
  }
};

TEST_F(Pipelines, give_the_bits_of_one_rank_by_every_schedule) {
  const Model blocks = model(kBlocks);
  for (const int64_t ranks : {2, 3}) {
    const int64_t micro_batches = 2 * ranks, rows = 2 * micro_batches;
    const std::vector<Tensors> steps = batches(2, rows);
    const Trained one = train(blocks, training(micro_batches, rows), {"dp=1", ""}, steps);
    for (const PipelineScheduleInfo& each : pipeline_schedules()) {
      const std::string name = each.name == "interleaved:V" ? "interleaved:2" : each.name;
      SCOPED_TRACE(name + " on " + std::to_string(ranks));
      const std::string mesh = "pp=" + std::to_string(ranks);
      expect_same_training(train_pipelined(blocks, training(micro_batches, rows), mesh, name, "", steps), one);
    }
  }
}

// Other axes divide a stage as they divide the whole model.
TEST_F(Pipelines, give_the_bits_of_a_mesh_without_stages) {
  const Model blocks = model(kBlocks);
  const std::vector<Tensors> steps = batches(2, 8);
  for (const auto& [axes, presets] : std::vector<std::pair<std::string, std::string>>{
           {"dp=2", ""}, {"fsdp=2", ""}, {"dp=2", "dp+zero1"}, {"tp=2", "megatron"}, {"tp=2", "megatron+sequence"}}) {
    SCOPED_TRACE(axes + " " + presets);
    const Trained alone = train(blocks, training(4, 8), {axes, presets}, steps);
    const std::string all = presets.empty() ? "" : "pipeline+" + presets;
    for (const std::string schedule : {"1f1b", "zb-v"})
      expect_same_training(train_pipelined(blocks, training(4, 8), "pp=2," + axes, schedule, "", steps, all), alone);
  }
}

TEST_F(Pipelines, give_the_same_bits_with_uneven_and_empty_stages) {
  const Model blocks = model(kBlocks);
  const std::vector<Tensors> steps = batches(2, 8);
  const Trained one = train(blocks, training(4, 8), {"dp=1", ""}, steps);
  for (const std::string stages : {"1,4,1", "0,6,0", "6,0,0", "0,0,6", "3,0,3"}) {
    SCOPED_TRACE(stages);
    expect_same_training(train_pipelined(blocks, training(4, 8), "pp=3", "1f1b", stages, steps), one);
  }
}

// What is drawn for a micro-batch depends on its number, not on when or where it is computed.
TEST_F(Pipelines, give_the_same_bits_with_dropout) {
  std::string text(kBlocks);
  text.replace(text.find("  h3 = Add (h2, t2)\n"), 0,
               "  ratio = Constant <value = float {0.3}> ()\n  yes = Constant <value = bool {1}> ()\n");
  text.replace(text.find("a3 = MatMul (h3, w3)"), 20, "d3 = Dropout (h3, ratio, yes)\n  a3 = MatMul (d3, w3)");
  const Model blocks = model(text);
  const std::vector<Tensors> steps = batches(2, 8);
  const Trained one = train(blocks, training(4, 8), {"dp=1", ""}, steps);
  for (const std::string schedule : {"gpipe", "zb-h1", "v-half"})
    expect_same_training(train_pipelined(blocks, training(4, 8), "pp=2", schedule, "", steps), one);
}

TEST_F(Pipelines, recompute_the_same_bits) {
  const Model blocks = model(kBlocks);
  const std::vector<Tensors> steps = batches(2, 8);
  const Trained one = train(blocks, training(4, 8), {"dp=1", ""}, steps);
  for (const std::string recompute : {"selective", "full"})
    expect_same_training(train_pipelined(blocks, training(4, 8), "pp=2", "1f1b", "", steps, "", recompute), one);
}

/// A Llama of 8 layers, as large as its tables' shares show in it.
class DeepPipelines : public Pipelines {
 protected:
  Program compiled_by(const std::string& schedule, bool several, const std::string& axes = "") {
    std::ofstream(folder_ / "deep.onnxtxt") << deep_model(8, 256, 256);
    Training training;
    training.optimizer = "sgd";
    training.micro_batches = 8;
    training.sizes = {{"batch", 32}, {"s", 128}};
    return compiled(Model::load(folder_ / "deep.onnxtxt"), training, "pp=4" + axes, schedule,
                    several ? "1,1,1,1,1,1,1,1" : "2,2,2,2");
  }

 private:
  TemporaryFolder folder_;
};

int64_t most_activations(const Program& program) {
  int64_t most = 0;
  for (int64_t rank = 0; rank < program.mesh().size(); ++rank)
    most = std::max(most, program.figures(rank).activation_bytes);
  return most;
}

// A table says how many micro-batches a rank holds, and the program holds as many.
TEST_F(DeepPipelines, hold_what_their_tables_say) {
  const auto held = [&](const std::string& schedule, bool several) {
    return static_cast<double>(most_activations(compiled_by(schedule, several)));
  };
  const double usual = held("1f1b", false);
  EXPECT_GE(held("gpipe", false), 1.6 * usual);
  EXPECT_LE(held("v-half", true), 0.55 * usual);
  EXPECT_LE(held("zb-v", true), 1.05 * usual);
}

// Stages compute at the same time, and weights' gradients fill the bubble.
TEST_F(DeepPipelines, are_faster_by_better_tables_in_simulation) {
  PredictSettings settings;
  settings.machine = load_machine("h100-sxm");
  const auto predicted = [&](const std::string& schedule) { return predict(compiled_by(schedule, false), settings); };
  const Prediction usual = predicted("1f1b"), divided = predicted("zb-h1");
  ASSERT_TRUE(usual.bubble && divided.bubble);
  EXPECT_NEAR(usual.bubble->share, 3.0 / 11, 0.1) << "as many slots idle as stages follow";
  EXPECT_LT(divided.bubble->share, usual.bubble->share - 0.05);
  EXPECT_LT(divided.step_ms, usual.step_ms);
  ASSERT_EQ(usual.bubble->ranks.size(), 4U);
  for (size_t rank = 0; rank < 4; ++rank)
    EXPECT_NEAR(usual.bubble->ranks[rank].total(), usual.classes[rank].exposed_ms + usual.classes[rank].idle_ms,
                0.02 * usual.step_ms);
}

// Gathers and casts are copied for each use; a copy must not come from another micro-batch's cell, or stages take turns
// (0.5 more). Gathers are not hidden here, so some time is theirs.
TEST_F(DeepPipelines, keep_the_order_of_their_tables_beside_other_axes) {
  PredictSettings settings;
  settings.machine = load_machine("h100-sxm");
  const double alone = predict(compiled_by("1f1b", false), settings).bubble.value().share;
  for (const std::string axes : {",fsdp=2", ",tp=2", ",dp=2"}) {
    SCOPED_TRACE(axes);
    EXPECT_LT(predict(compiled_by("1f1b", false, axes), settings).bubble.value().share, alone + 0.25);
  }
}

// All ranks run loops and branches; what comes before and after is in stages.
TEST_F(Pipelines, run_models_with_branches) {
  const Model branches = model(R"(
branches (float[4, 8] x, bool c) => (float[4, 8] y)
  <float[8, 8] w0, float[8, 8] w1, float[8, 8] w2, float[8, 8] w3> {
  h0 = MatMul (x, w0)
  h1 = MatMul (h0, w1)
  r = If (c) <then_branch = yes () => (float[4, 8] p) {
      p0 = MatMul (h1, w2)
      p = Tanh (p0)
    }, else_branch = no () => (float[4, 8] q) {
      q = Neg (h1)
    }>
  y0 = MatMul (r, w3)
  y = Relu (y0)
})");
  for (const bool taken : {true, false}) {
    const Tensors inputs = {{"x", scattered({4, 8}, 1)},
                            {"c", Tensor::of(DType::boolean, {}, std::vector<uint8_t>{taken})}};
    Session one(compile(branches, Mesh()), one_thread());
    for (const char* mesh : {"pp=2", "pp=3", "pp=2,tp=2"}) {
      SCOPED_TRACE(mesh);
      Plan plan;
      plan.presets = "pipeline";
      Session session(compile(branches, Mesh::parse(mesh), plan), one_thread());
      expect_same(session.run(inputs), one.run(inputs));
    }
  }
}

TEST_F(Pipelines, that_cannot_be_are_refused) {
  const Model blocks = model(kBlocks);
  const auto mistake = [&](const std::string& mesh, const std::string& schedule, const std::string& stages) {
    return error_of([&] { compiled(blocks, training(4, 8), mesh, schedule, stages); });
  };
  EXPECT_THAT(mistake("pp=2", "1f1b", "2,5"), HasSubstr("are 7 blocks, but the graph has 6"));
  EXPECT_THAT(mistake("pp=2", "1f1b", "6"), HasSubstr("give one for each"));
  EXPECT_THAT(mistake("pp=4", "dualpipe-v", ""), HasSubstr("needs at least 8 micro-batches, not 4"));
  EXPECT_THAT(mistake("dp=2", "1f1b", ""), HasSubstr("pp"));
  TemporaryFolder folder;
  const std::string path = folder / "table.csv";
  std::ofstream(path) << pipeline_csv(make_pipeline("1f1b", {2, 3}));
  EXPECT_THAT(mistake("pp=2", path, ""), HasSubstr("has 3 micro-batches, but the step has 4"));
  EXPECT_THAT(mistake("pp=3", path, ""), HasSubstr("has 2 ranks, but the axis 'pp' has 3"));
  std::ofstream(path) << "0F0,0F1,0F2,0F3\n1F0,1F1,1F2,1F3\n";
  EXPECT_THAT(mistake("pp=2", path, ""), HasSubstr("has forward passes only, and the step has gradients"));
}

}  // namespace
}  // namespace tessera::test

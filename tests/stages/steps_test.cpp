// Stages of training steps: where the backward pass goes, norms, and updates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.h"
#include "plan/deep_model.h"
#include "stages/crossings.h"
#include "stages/graphs.h"
#include "stages/models.h"

namespace tessera::stages {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TEST(StepStages, of_a_step_send_one_result_and_one_gradient_for_each_cut) {
  for (int micro_batches : {1, 4}) {
    const OnnxModel model = step_of(deep_text(6), micro_batches);
    const Stages stages = found(model, 3);
    EXPECT_THAT(counts_of(stages), ElementsAre(2, 2, 2));
    expect_ordered(model, stages);
    expect_updates_at_home(model, stages);
    std::vector<int> results(3), gradients(3);
    for (const Crossing& each : crossings(*model.graph, stages, sizes())) {
      if (each.scalar) continue;
      EXPECT_EQ(each.bytes, stages.stages[0].cut_bytes) << each.value;
      if (each.to_forward) ++results[static_cast<size_t>(each.from)];
      if (!each.of_forward) ++gradients[static_cast<size_t>(each.from)];
    }
    EXPECT_THAT(results, ElementsAre(1, 1, 0));
    EXPECT_THAT(gradients, ElementsAre(0, 1, 1));
  }
}

TEST(StepStages, are_the_same_in_all_micro_batches) {
  const OnnxModel model = step_of(deep_text(6), 4);
  const Stages stages = found(model, 3);
  for (int part = 1; part < 4; ++part)
    for (int layer = 1; layer < 6; ++layer)
      EXPECT_EQ(stage_of(model, stages, fmt::format("h{}.part{}", layer, part)),
                stage_of(model, stages, fmt::format("h{}.part0", layer)));
}

TEST(StepStages, refuse_micro_batches_that_differ) {
  const OnnxModel model = step_of(deep_text(2), 2);
  for (const auto& node : model.graph->nodes())
    if (node->seat.micro_batch == 1 && node->is("Attention")) node->op_type = "Attend";
  EXPECT_THAT(tessera::test::error_of([&] { found(model, 2); }),
              HasSubstr("micro-batch 1 has Attend producing 'a0.part1' where micro-batch 0 has Attention producing "
                        "'a0.part0'; all micro-batches must be alike"));
}

// The norm's scalars are summed on the way through the stages; what follows from the sum, each stage computes.
TEST(StepStages, clip_by_the_norm_of_all) {
  const OnnxModel model = step_of(deep_text(4));
  const Stages stages = found(model, 4);
  EXPECT_EQ(stage_of(model, stages, "grad_norm"), -1);
  EXPECT_EQ(stage_of(model, stages, "next.train.step"), -1);
  EXPECT_EQ(stage_of(model, stages, "learning_rate"), -1);
  EXPECT_EQ(stage_of(model, stages, "loss"), 3);
  for (const auto& node : model.graph->nodes()) {
    if (!node->is("Min")) continue;
    EXPECT_EQ(stages.of(*node), -1) << node->label();
  }
}

TEST(StepStages, share_a_tied_embedding) {
  const OnnxModel model = step_of(parse_text(tied_decoder(4)), 2);
  const Stages stages = found(model, 2);
  EXPECT_THAT(counts_of(stages), ElementsAre(2, 2));
  expect_ordered(model, stages);
  expect_updates_at_home(model, stages);
  EXPECT_EQ(stage_of(model, stages, "h0.part0"), 0);
  EXPECT_EQ(stage_of(model, stages, "logits.part0"), 1);
  EXPECT_EQ(stage_of(model, stages, "next.embedding"), 0);
  EXPECT_EQ(stage_of(model, stages, "next.positions"), 0);
}

TEST(StepStages, are_found_in_steps_of_frameworks) {
  for (const char* name : {"mlp-sgd", "gpt-adamw", "gpt-tied-sgd"}) {
    SCOPED_TRACE(name);
    const OnnxModel model = framework_step(name);
    const Stages stages = found(model, 2);
    EXPECT_THAT(stages.blocks, SizeIs(2));
    expect_ordered(model, stages);
    expect_updates_at_home(model, stages);
    EXPECT_EQ(stage_of(model, stages, "loss"), 1);
  }
}

TEST(StepStages, are_found_in_steps_of_training_models) {
  for (std::string name : {"gpt", "llama", "cnn", "mlp"})
    for (int64_t count : {2, 3}) {
      SCOPED_TRACE(fmt::format("{}, {} stages", name, count));
      const OnnxModel model = step_of(import_model(models() / "training" / name / "model.onnx"), 1,
                                      name == "mlp" ? "mse" : "cross-entropy");
      const Stages stages = found(model, count);
      expect_ordered(model, stages);
      expect_updates_at_home(model, stages);
    }
}

// What an optimizer, a loss scale, another type or frozen parameters add.
TEST(StepStages, hold_for_all_kinds_of_steps) {
  const std::vector<std::pair<std::string, std::function<void(train::StepOptions&)>>> kinds = {
      {"bfloat16", [](auto& options) { options.compute = DType::bfloat16; }},
      {"float16, scaled", [](auto& options) { options.compute = DType::float16; }},
      {"adafactor", [](auto& options) { options.optimizer = "adafactor"; }},
      {"lamb", [](auto& options) { options.optimizer = "lamb"; }},
      {"muon", [](auto& options) { options.optimizer = "muon"; }},
      {"an average", [](auto& options) { options.average = 0.9; }},
      {"sgd, not clipped",
       [](auto& options) {
         options.optimizer = "sgd";
         options.clip = 0;
       }},
      {"four micro-batches",
       [](auto& options) {
         options.micro_batches = 4;
         options.sizes = {{"batch", 8}};
       }},
      {"running statistics, two micro-batches",
       [](auto& options) {
         options.batch_norm = train::BatchNorm::train;
         options.micro_batches = 2;
         options.sizes = {{"batch", 8}};
       }},
      {"frozen", [](auto& options) { options.freeze = {"*.0.*"}; }},
  };
  for (const std::string name : {"gpt", "llama", "cnn", "mlp"}) {
    const OnnxModel model = import_model(models() / "training" / name / "model.onnx");
    for (const auto& [kind, change] : kinds) {
      if (kind.starts_with("running") && name != "cnn") continue;
      if (kind == "frozen" && (name == "cnn" || name == "mlp")) continue;
      SCOPED_TRACE(name + ", " + kind);
      train::StepOptions options;
      options.loss = name == "mlp" ? "mse" : "cross-entropy";
      options.clip = 1;
      change(options);
      const OnnxModel step = std::move(train::make_step(model, options).model);
      for (int64_t count : {1, 2, 3}) {
        const Stages stages = found(step, count);
        expect_ordered(step, stages);
        expect_updates_at_home(step, stages);
      }
    }
  }
}

// An evaluation has no backward pass; all of it is forward.
TEST(StepStages, of_an_evaluation_are_those_of_the_forward_pass) {
  train::StepOptions options;
  const OnnxModel model = std::move(train::make_evaluation(deep_text(6), options).model);
  const Stages stages = found(model, 3);
  EXPECT_THAT(counts_of(stages), ElementsAre(2, 2, 2));
  expect_ordered(model, stages);
  EXPECT_EQ(stage_of(model, stages, "loss"), 2);
}

}  // namespace
}  // namespace tessera::stages

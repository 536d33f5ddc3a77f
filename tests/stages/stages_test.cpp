// Which nodes belong to which stage, of models for inference and of training steps.
#include "tessera/stages/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "error_of.h"
#include "plan/deep_model.h"
#include "stages/crossings.h"
#include "stages/graphs.h"
#include "stages/models.h"

namespace tessera::stages {
namespace {

using namespace test;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::SizeIs;

TEST(Stages, are_layers_with_the_embedding_before_and_the_head_behind) {
  const OnnxModel model = typed(deep_text(12));
  const Stages stages = found(model, 4);
  EXPECT_THAT(stages.blocks, SizeIs(12));
  EXPECT_THAT(counts_of(stages), ElementsAre(3, 3, 3, 3));
  EXPECT_TRUE(stages.best);
  EXPECT_EQ(stages.blocks[2].last, "h3");
  EXPECT_EQ(stage_of(model, stages, "h0"), 0);
  EXPECT_EQ(stage_of(model, stages, "h3"), 0);
  EXPECT_EQ(stage_of(model, stages, "x3"), 1);
  EXPECT_EQ(stage_of(model, stages, "h11"), 3);
  EXPECT_EQ(stage_of(model, stages, "logits"), 3);
  constexpr double kHidden = 8.0 * 16 * 32 * 4;
  EXPECT_EQ(stages.stages[0].cut_bytes, kHidden);
  EXPECT_THAT(crossings(*model.graph, stages, sizes()), Each(Field(&Crossing::bytes, kHidden)));
}

TEST(Stages, have_the_blocks_that_are_asked_for) {
  const OnnxModel model = typed(deep_text(8));
  StageSettings settings;
  settings.stages = 4;
  settings.blocks = {1, 4, 0, 3};
  const Stages stages = found(model, settings);
  EXPECT_THAT(counts_of(stages), ElementsAre(1, 4, 0, 3));
  EXPECT_EQ(stage_of(model, stages, "h1"), 0);
  EXPECT_EQ(stage_of(model, stages, "h5"), 1);
  EXPECT_EQ(stage_of(model, stages, "h6"), 3);
  for (const auto& node : model.graph->nodes()) EXPECT_NE(stages.of(*node), 2) << node->label();
}

TEST(Stages, refuse_a_wrong_number_of_blocks) {
  const OnnxModel model = typed(deep_text(8));
  StageSettings settings;
  settings.stages = 2;
  settings.blocks = {4, 5};
  EXPECT_EQ(tessera::test::error_of([&] { found(model, settings); }),
            "[pipeline] stages of 4,5 blocks are 9 blocks, but the graph has 8; give numbers with that sum, or auto");
  settings.blocks = {8};
  EXPECT_EQ(tessera::test::error_of([&] { found(model, settings); }),
            "[pipeline] 1 numbers of blocks are given for 2 stages; give one for each");
  settings.blocks = {9, -1};
  EXPECT_EQ(tessera::test::error_of([&] { found(model, settings); }),
            "[pipeline] a stage cannot have -1 blocks; give 0 or more");
}

TEST(Stages, are_empty_at_the_end_if_there_are_more_than_blocks) {
  EXPECT_THAT(counts_of(found(typed(deep_text(2)), 4)), ElementsAre(1, 1, 0, 0));
}

// A head of a large vocabulary takes as long as several layers.
TEST(Stages, count_the_head) {
  const OnnxModel model = typed(parse_text(tessera::test::deep_model(8, 32, 2000)));
  const std::vector<int64_t> counts = counts_of(found(model, 2));
  EXPECT_GT(counts[0], counts[1]);
}

TEST(Stages, of_an_encoder_and_a_decoder_are_layers_of_both) {
  for (bool trains : {false, true}) {
    const OnnxModel text = parse_text(encoder_decoder(4, 3));
    const OnnxModel model = trains ? step_of(text) : typed(text.clone());
    const Stages stages = found(model, 3);
    EXPECT_THAT(stages.blocks, SizeIs(7));
    expect_ordered(model, stages);
    if (trains) expect_updates_at_home(model, stages);
    // The decoder's embedding is not kept while the encoder runs, and the encoder's result as long as the decoder runs.
    constexpr double kHidden = 8.0 * 16 * 32 * 4;
    for (size_t b : {0, 1, 2, 3}) EXPECT_EQ(stages.blocks[b].cut_bytes, kHidden);
    for (size_t b : {4, 5}) EXPECT_EQ(stages.blocks[b].cut_bytes, 2 * kHidden);
  }
}

TEST(Stages, cut_a_convolutional_network_through_its_skips) {
  for (bool trains : {false, true}) {
    const OnnxModel text = parse_text(u_net());
    const OnnxModel model = trains ? step_of(text, 1, "mse") : typed(text.clone());
    for (int64_t count : {2, 3, 4}) {
      const Stages stages = found(model, count);
      expect_ordered(model, stages);
      if (trains) expect_updates_at_home(model, stages);
    }
    StageSettings settings;
    settings.stages = 2;
    settings.blocks = {3, static_cast<int64_t>(found(model, 2).blocks.size()) - 3};
    const Stages stages = found(model, settings);
    EXPECT_EQ(stage_of(model, stages, "c2"), 0);
    EXPECT_EQ(stage_of(model, stages, "d1"), 1);
    constexpr double kSkips = 8 * 4 * (8 * 32 * 32 + 16 * 16 * 16), kResult = 8 * 4 * 32 * 8 * 8;
    EXPECT_EQ(stages.stages[0].cut_bytes, kSkips + kResult);
  }
}

TEST(Stages, keep_the_memory_of_each_stage) {
  const OnnxModel model = step_of(deep_text(6));
  StageSettings settings;
  settings.stages = 2;
  settings.in_flight = {8, 1};
  const Stages free = found(model, settings);
  EXPECT_THAT(counts_of(free), ElementsAre(3, 3));
  settings.memory = {free.stages[0].memory * 0.9, free.stages[0].memory};
  const Stages tight = found(model, settings);
  EXPECT_THAT(counts_of(tight), ElementsAre(2, 4));
  EXPECT_LE(tight.stages[0].memory, settings.memory[0]);
  settings.memory = {1000, 1000};
  EXPECT_THAT(tessera::test::error_of([&] { found(model, settings); }),
              HasSubstr("[pipeline] no division of 6 blocks among 2 stages keeps the memory of each"));
}

TEST(Stages, of_several_on_a_rank_make_the_slowest_rank_fast) {
  const OnnxModel model = typed(deep_text(8));
  StageSettings settings;
  settings.stages = 4;
  settings.ranks_of = {0, 1, 1, 0};
  settings.seconds = [](const Node& node) { return node.is("Gather") ? 3.0 : node.is("Attention") ? 1.0 : 0.0; };
  const Stages stages = found(model, settings);
  double first = 0;
  for (const StageInfo& stage : stages.stages)
    if (stage.rank == 0) first += stage.share;
  EXPECT_NEAR(first, 6.0 / 11, 1e-9);  // 3 + 3 of 11, or 3 + 2
  EXPECT_TRUE(stages.best);
}

TEST(Stages, print_as_a_table) {
  const Stages stages = found(typed(deep_text(4)), 2);
  EXPECT_EQ(stages_text(stages),
            "stage  rank     blocks    time      memory     to next\n"
            "    0     0        0-1  48.6 %    92.5 KiB    16.0 KiB\n"
            "    1     1        2-3  51.4 %    92.5 KiB            \n");
}

// Models that exporters wrote.
TEST(Stages, count_the_layers_of_exported_models) {
  const std::vector<std::pair<std::string, size_t>> layers = {{"gpt2", 3},        {"gpt2-sdpa", 2}, {"llama", 2},
                                                              {"llama-cache", 2}, {"bert", 3},      {"vit", 3},
                                                              {"moe", 2},         {"resnet", 8}};
  for (const auto& [name, count] : layers) {
    SCOPED_TRACE(name);
    const OnnxModel model = typed(import_model(models() / name / "model.onnx"));
    const Stages stages = found(model, 2);
    EXPECT_THAT(stages.blocks, SizeIs(count));
    expect_ordered(model, stages);
  }
}

}  // namespace
}  // namespace tessera::stages

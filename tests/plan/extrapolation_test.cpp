// What small programs say of large ones.
#include "tessera/plan/extrapolation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/temporary_folder.h"
#include "plan/deep_model.h"
#include "tessera/files.h"
#include "tessera/plan/blocks_alike.h"
#include "tessera/plan/peak_lines.h"
#include "tessera/plan/scaled_program.h"

namespace tessera::plan {
namespace {

using testing::DoubleNear;

double at(const std::vector<Sample>& samples, const std::function<double(const Scale&)>& figure) {
  double sum = 0;
  for (const Sample& sample : samples) sum += sample.weight * figure(sample.scale);
  return sum;
}

TEST(SamplesOf, give_what_is_linear) {
  const auto figure = [](const Scale& scale) {
    return 7.0 + 3.0 * static_cast<double>(scale.blocks) + 5.0 * scale.micro_batches +
           2.0 * static_cast<double>(scale.blocks) * scale.micro_batches;
  };
  for (const Scale& whole : {Scale{80, 1}, Scale{80, 8}, Scale{80, 3}, Scale{2, 9}, Scale{1, 1}}) {
    const std::vector<Sample> samples = samples_of(whole, {1, 2}, {2, 3});
    EXPECT_NEAR(at(samples, figure), figure(whole), 1e-9);
    for (const Sample& sample : samples) EXPECT_LE(sample.scale.blocks * sample.scale.micro_batches, 6);
  }
  EXPECT_EQ(samples_of({80, 1}, {1, 2}, {2, 3}).size(), 2U);
  EXPECT_EQ(samples_of({80, 8}, {1, 2}, {2, 3}).size(), 4U);
}

TEST(SumOf, adds_times_and_chains) {
  Prediction one, two;
  one.step_ms = 3, one.compute_ms = 2, one.exposed_ms = 1, one.link_ms = 1, one.computation_ms = 2;
  two.step_ms = 5, two.compute_ms = 3, two.exposed_ms = 2, two.link_ms = 4, two.computation_ms = 3;
  one.chain = {{"MatMul", false, 4, 2}};
  two.chain = {{"MatMul", false, 6, 3.5}, {"AllReduce", true, 1, 2}};
  const Prediction sum = sum_of({{one, -1}, {two, 2}});
  EXPECT_EQ(sum.step_ms, 7);
  EXPECT_EQ(sum.bound, "link");
  EXPECT_EQ(sum.bound_ms, 7);
  ASSERT_EQ(sum.chain.size(), 2U);
  EXPECT_EQ(sum.chain[0].op, "MatMul");
  EXPECT_EQ(sum.chain[0].count, 8);
  EXPECT_EQ(sum.chain[0].ms, 5);
  // No part of a larger program takes less than in a smaller one.
  EXPECT_EQ(sum_of({{two, -10}, {one, 11}}).step_ms, 3);
}

MemoryMoment moment(const std::string& operation, int64_t bytes) {
  return {operation, bytes, 0, 0, 0};
}

// In small programs the loss has the peak, which grows by 1 with each block; in large ones the update, by 3.
TEST(PeakWith, follows_each_moment) {
  const HeldMemory less{
      1, {moment("Add 'a0'", 2), moment("Loss 'l'", 20), moment("Grad 'b0'", 6), moment("Update", 5)}, 20};
  const HeldMemory more{2,
                        {moment("Add 'a0'", 2), moment("Add 'a1'", 3), moment("Loss 'l'", 21), moment("Grad 'b1'", 10),
                         moment("Grad 'b0'", 7), moment("Update", 8)},
                        22};
  EXPECT_EQ(peak_with(5, less, more), 24 + 1);   // of the loss, and what is lost between buffers
  EXPECT_EQ(peak_with(20, less, more), 82 + 1);  // of the last block's gradient, 4 more with each
}

// A mask that the loss needs may be made whenever there is time.
TEST(PeakWith, leaves_out_what_runs_at_other_times) {
  const HeldMemory less{
      1, {moment("Equal 'mask'", 1), moment("Add 'a0'", 2), moment("Loss 'l'", 20), moment("Update", 5)}, 20};
  const HeldMemory more{2,
                        {moment("Add 'a0'", 2), moment("Add 'a1'", 3), moment("Equal 'mask'", 19),
                         moment("Loss 'l'", 21), moment("Update", 6)},
                        21};
  EXPECT_EQ(peak_with(10, less, more), 29);  // of the loss, and not 163 of the mask
}

TEST(TreatsBlocksAlike, compares_names_of_blocks) {
  const ModelBlocks blocks{3, 2, {{"l.0.w", "l.1.w", "l.2.w"}}};
  Plan plan;
  plan.annotations = {{"l.*.w=[tp,-]"}, {"head=[tp,-]"}};
  plan.keep_gathered = {"*"};
  EXPECT_TRUE(treats_blocks_alike(blocks, plan, nullptr));
  Training training;
  training.freeze = {"l.1.*"};
  EXPECT_FALSE(treats_blocks_alike(blocks, plan, &training));
  training.freeze = {"l.*"};
  EXPECT_TRUE(treats_blocks_alike(blocks, plan, &training));
  plan.annotations.push_back({"l.2.w=[-,tp]"});
  EXPECT_FALSE(treats_blocks_alike(blocks, plan, nullptr));
  plan.annotations.pop_back();
  plan.recompute = "l.0.gelu";
  EXPECT_FALSE(treats_blocks_alike(blocks, plan, nullptr));
}

// Time and memory of whole programs, over presets, recomputation, micro-batches and sizes. A peak that is foretold too
// low would let plans pass that do not fit; one too high drops plans that do.
TEST(ScaledProgram, foretells_the_whole) {
  struct Case {
    const char *mesh, *presets;
    int micro_batches, hidden, sequence;
    std::vector<const char*> recompute = {"none", "full"};
  };
  const Case cases[] = {{"fsdp=16", "fsdp", 1, 4096, 2048},
                        {"dp=2,tp=8", "dp+megatron", 4, 4096, 2048},
                        {"fsdp=8", "fsdp", 8, 2048, 2048, {"full"}},
                        // The loss's mask runs early in two blocks, and late in four. Of two blocks, gathers do not hide
                        // behind as much as of more.
                        {"fsdp=8,tp=8", "fsdp+megatron+sequence", 2, 4096, 4096, {"none"}},
                        {"fsdp=2,tp=8", "fsdp+megatron+sequence", 1, 8192, 4096}};
  constexpr int kLayers = 12;
  const testing_io::TemporaryFolder folder;
  for (const Case& each : cases) {
    write_file(folder / "deep.onnxtxt", test::deep_model(kLayers, each.hidden, 32000));
    const Model model = Model::load(folder / "deep.onnxtxt");
    PlannerSettings settings;
    settings.predict.machine = load_machine("h100-sxm");
    settings.seconds = 60;
    settings.fixed.shapes = {{"batch", 64}, {"s", each.sequence}};
    settings.fixed.dtype = DType::bfloat16;
    settings.training.emplace();
    const PlannedModel planned(model, settings);
    ASSERT_TRUE(planned.extrapolates());
    for (const char* recompute : each.recompute) {
      SCOPED_TRACE(fmt::format("{} {} {} {} {}", each.mesh, each.presets, recompute, each.micro_batches, each.hidden));
      Plan plan;
      plan.presets = each.presets;
      plan.recompute = recompute;
      plan.micro_batches = each.micro_batches;
      const Mesh mesh = Mesh::parse(each.mesh);
      const Scale whole = planned.whole(each.micro_batches);
      const ScaledProgram scaled(planned, plan, mesh, whole, true);
      const Program program = planned.compiled(plan, mesh, whole);
      const double seconds = predict(program, settings.predict).step_ms, bytes = peak_of(program);
      EXPECT_THAT(scaled.predicted(settings.predict).step_ms, DoubleNear(seconds, 0.03 * seconds));
      EXPECT_GT(scaled.peak(whole), 0.97 * bytes);
      EXPECT_LT(scaled.peak(whole), 1.1 * bytes);
    }
  }
}

}  // namespace
}  // namespace tessera::plan

#include "tessera/plan/estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/plan/compare.h"

namespace tessera::plan {
namespace {

using testing::HasSubstr;

// A byte takes a nanosecond in a link.
MachineModel round_machine() {
  MachineModel machine;
  machine.links = {{"near", 4, 0, 1e9}, {"far", 0, 0, 1e8}};
  return machine;
}

Choice choice(const std::string& mesh, const std::string& presets) {
  Choice made;
  made.mesh = Mesh::parse(mesh);
  made.presets = presets;
  made.stores_parameters = presets == "fsdp";
  if (made.stores_parameters) made.parameter_shards = made.optimizer_shards = made.mesh.size();
  made.recompute = "none";
  made.layout = std::hash<std::string>()(mesh + presets);
  return made;
}

const Facts kFacts{
    .parameter_bytes = 100, .optimizer_bytes = 200, .gradient_bytes = 100, .gathered_bytes = 50, .ideal_seconds = 8};

TEST(BoundsOf, are_states_and_products) {
  Choice split = choice("dp=4,tp=2", "zero1");
  split.parameter_shards = 2;
  split.optimizer_shards = 8;
  const Bounds bounds = bounds_of(split, kFacts);
  EXPECT_EQ(bounds.bytes, 75);
  EXPECT_EQ(bounds.seconds, 1);
}

TEST(Estimator, counts_gradients_on_their_links) {
  const MachineModel machine = round_machine();
  const Estimator estimator(kFacts, machine);
  // A ring of 4: 2 · 3/4 · 100 bytes.
  EXPECT_NEAR(estimator.of(choice("dp=4", "dp")).seconds, 2 + 150e-9, 1e-15);
  // Gathered twice, scattered once: 3/4 · (2 · 50 + 100).
  EXPECT_NEAR(estimator.of(choice("fsdp=4", "fsdp")).seconds, 2 + 150e-9, 1e-15);
  EXPECT_GT(estimator.of(choice("dp=8", "dp")).seconds, 1 + 1000e-9);
}

TEST(Estimator, learns_from_what_was_compiled) {
  const MachineModel machine = round_machine();
  Estimator estimator(kFacts, machine);
  const Choice whole = choice("dp=4", "dp");
  estimator.learn({whole, 6, 4, 4, 600, {{"dp", 150}}});
  EXPECT_DOUBLE_EQ(estimator.of(whole).seconds, 6);
  EXPECT_DOUBLE_EQ(estimator.of(whole).bytes, 600);
  // Half of the 150 bytes beside the states, the gradients, and the parameters in the type of products.
  Choice parts = whole;
  parts.micro_batches = 2;
  EXPECT_DOUBLE_EQ(estimator.of(parts).bytes, 525);
  Choice recomputed = whole;
  recomputed.recompute = "full";
  EXPECT_LT(estimator.of(recomputed).bytes, 525);
  EXPECT_GT(estimator.of(recomputed).seconds, 6);
  // Others take the slowness of its computation, twice the ideal, and its activations.
  EXPECT_NEAR(estimator.of(choice("fsdp=4", "fsdp")).seconds, 4 + 150e-9, 1e-12);
  EXPECT_DOUBLE_EQ(estimator.of(choice("fsdp=4", "fsdp")).bytes, 75 + 25 + 150);
}

TEST(Estimator, learns_from_other_meshes_with_the_same_presets) {
  const MachineModel machine = round_machine();
  Estimator estimator(kFacts, machine);
  const Choice eight = choice("fsdp=8", "fsdp");
  const Outcome before = estimator.of(eight);
  estimator.learn({choice("fsdp=4", "fsdp"), 12, 2, 2, 175, {}});
  EXPECT_GT(estimator.of(eight).seconds, 5 * before.seconds);
  // 75 bytes beyond the states and gradients: 150 activations' bytes of all samples would be 37.5 on a rank of eight.
  EXPECT_DOUBLE_EQ(estimator.of(eight).bytes, 37.5 + 12.5 + 37.5);
}

TEST(Estimator, learns_what_each_recomputation_holds) {
  const MachineModel machine = round_machine();
  Estimator estimator(kFacts, machine);
  Choice none = choice("dp=4", "dp"), full = none;
  full.recompute = "full";
  estimator.learn({none, 0, 0, 0, 450 + 1000, {}});
  estimator.learn({full, 0, 0, 0, 450 + 50, {}});
  Choice split = choice("fsdp=4", "fsdp"), split_full = split;
  split_full.recompute = "full";
  EXPECT_DOUBLE_EQ(estimator.of(split).bytes, 100 + 1000);
  EXPECT_DOUBLE_EQ(estimator.of(split_full).bytes, 100 + 50);
}

TEST(Estimator, learns_what_splitting_within_layers_moves) {
  const MachineModel machine = round_machine();
  Estimator estimator(kFacts, machine);
  Choice split = choice("tp=4", "megatron");
  split.tensor = "megatron";
  Choice other = choice("dp=2,tp=2", "zero1+megatron");
  other.tensor = "megatron";
  const double before = estimator.of(other).seconds;
  estimator.learn({split, 3, 2, 2, 300, {{"tp", 1.5e9}}});
  // 1.5e9 = 2 · 3/4 · 1e9; half of the samples: 2 · 1/2 · 0.5e9 bytes.
  EXPECT_NEAR(estimator.of(other).seconds - before, 0.5, 1e-9);
}

TEST(Estimator, bounds_buckets_by_the_kernels_without_any) {
  const MachineModel machine = round_machine();
  Estimator estimator(kFacts, machine);
  Choice none = choice("dp=4", "dp"), some = none, parts = none;
  none.bucket_bytes = 0;
  parts.micro_batches = 2;
  parts.kernels = 1;
  estimator.learn({none, 6, 4.5, 4, 400, {}});
  EXPECT_EQ(estimator.least_seconds(some), 4);
  EXPECT_EQ(estimator.least_seconds(parts), 0);
}

TEST(LeastFactor, is_found_within_a_percent) {
  EXPECT_NEAR(*least_factor([](double factor) { return factor >= 1.4; }, 32), 1.4, 0.014);
  EXPECT_EQ(least_factor([](double) { return true; }, 32), 1);
  EXPECT_EQ(least_factor([](double) { return false; }, 32), std::nullopt);
}

TEST(Difference, names_what_decided) {
  Prediction best, other;
  best.compute_ms = 5;
  best.exposed_ms = 1;
  other.compute_ms = 4.5;
  other.exposed_ms = 3.5;
  other.idle_ms = 0.01;
  other.chain = {{"AllGather", true, 3, 2.5}, {"MatMul", false, 3, 9}};
  EXPECT_EQ(difference(best, other), "2.50 ms more exposed communication (mostly AllGather), 0.50 ms less computation");
  EXPECT_EQ(difference(best, best), "as fast");
}

}  // namespace
}  // namespace tessera::plan

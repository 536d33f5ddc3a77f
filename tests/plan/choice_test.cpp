#include "tessera/plan/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "error_of.h"
#include "tessera/plan/probes.h"

namespace tessera::plan {
namespace {

using test::error_of;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> texts(const Space& space) {
  std::vector<std::string> all;
  for (const Choice& choice : choices(space)) all.push_back(choice.str());
  return all;
}

TEST(Choices, one_device_has_no_layouts_to_choose) {
  EXPECT_THAT(texts({.devices = 1}), ElementsAre("one rank"));
  EXPECT_THAT(texts({.devices = 1, .trains = true, .batch = 2}),
              ElementsAre("one rank", "one rank, 2 micro-batches", "one rank, recompute=selective",
                          "one rank, 2 micro-batches, recompute=selective", "one rank, recompute=full",
                          "one rank, 2 micro-batches, recompute=full"));
}

TEST(Choices, have_every_preset_on_every_mesh) {
  const std::vector<std::string> all = texts({.devices = 8, .trains = true, .batch = 8});
  for (const char* each :
       {"dp=8, dp", "dp=8, zero1", "fsdp=8, fsdp", "dp=2,fsdp=4, dp+fsdp", "tp=8, megatron",
        "dp=2,tp=4, zero1+megatron+sequence", "fsdp=4,tp=2, fsdp+megatron+features",
        "dp=2,fsdp=2,tp=2, zero1:dp+fsdp+megatron", "tp=8, sequence", "fsdp=8, fsdp, keep-gathered=*",
        "dp=2,tp=4, dp+megatron, 4 micro-batches, recompute=full", "dp=8, dp, bucket-bytes=0"})
    EXPECT_THAT(all, Contains(each));
  EXPECT_THAT(all, Not(Contains(HasSubstr("ep="))));
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
  // 8 samples in 2 parts are too few for 8 ranks.
  EXPECT_THAT(all, Not(Contains("dp=8, dp, 2 micro-batches")));
}

TEST(Choices, have_an_axis_for_experts) {
  const std::vector<std::string> all = texts({.devices = 4, .has_experts = true});
  for (const char* each : {"ep=4, expert", "dp=2,ep=2, dp+expert", "dp=4, dp+expert:dp", "ep=2,tp=2, megatron+expert"})
    EXPECT_THAT(all, Contains(each));
}

TEST(Choices, have_an_axis_for_contexts) {
  const std::vector<std::string> all = texts({.devices = 8, .trains = true, .context = 4, .batch = 8});
  for (const char* each : {"dp=2,cp=4, dp+context", "fsdp=2,cp=2,tp=2, fsdp+context+megatron+sequence"})
    EXPECT_THAT(all, Contains(each));
  EXPECT_THAT(all, Not(Contains(HasSubstr("cp=8")))) << "more ranks than tokens";
  EXPECT_THAT(texts({.devices = 8}), Not(Contains(HasSubstr("cp="))));
}

TEST(Choices, keep_what_is_fixed) {
  Space space{.devices = 4, .trains = true, .batch = 8};
  space.fixed.mesh = "dp=2,tp=2";
  space.fixed.recompute = "full";
  space.fixed.bucket_bytes = 0;
  space.fixed.micro_batches = 2;
  EXPECT_THAT(texts(space), Each(AllOf(HasSubstr("dp=2,tp=2, "), HasSubstr("2 micro-batches, recompute=full"),
                                       HasSubstr("bucket-bytes=0"))));
  EXPECT_THAT(texts(space), testing::SizeIs(10));
  space.fixed.presets = "dp+megatron";
  EXPECT_THAT(texts(space), testing::SizeIs(1));
  const Plan plan = choices(space).front().over(space.fixed);
  EXPECT_EQ(plan.micro_batches, 2);
  EXPECT_EQ(plan.mesh, "dp=2,tp=2");
}

TEST(Choices, take_any_mesh_with_its_presets) {
  Space space{.devices = 4};
  space.fixed.mesh = "x=4";
  EXPECT_THAT(error_of([&] { choices(space); }), HasSubstr("give `presets`, too"));
  space.fixed.presets = "megatron:x";
  EXPECT_THAT(texts(space), Contains("x=4, megatron:x"));
  space.devices = 8;
  EXPECT_THAT(error_of([&] { choices(space); }), HasSubstr("has 4 ranks, but there are 8 devices"));
}

TEST(Choices, know_how_states_are_stored) {
  for (const Choice& choice : choices({.devices = 8, .trains = true, .batch = 8})) {
    if (choice.str() == "dp=2,fsdp=2,tp=2, zero1:dp+fsdp+megatron") {
      EXPECT_EQ(choice.parameter_shards, 4);
      EXPECT_EQ(choice.optimizer_shards, 8);
    }
    if (choice.str() == "dp=8, dp") {
      EXPECT_EQ(choice.parameter_shards, 1);
      EXPECT_EQ(choice.optimizer_shards, 1);
    }
  }
}

TEST(Probes, are_one_of_each_way_to_split_layers) {
  Space space;
  space.devices = 64;
  space.trains = true;
  space.batch = 64;
  space.context = 128;
  const std::vector<Choice> all = choices(space);
  std::vector<std::string> texts;
  for (const size_t probe : probes(all, 8)) texts.push_back(all[probe].str());
  EXPECT_THAT(texts, testing::UnorderedElementsAre(
                         "fsdp=64, fsdp", "fsdp=64, fsdp, recompute=selective", "fsdp=64, fsdp, recompute=full",
                         "fsdp=8,cp=8, fsdp+context, recompute=full", "fsdp=8,tp=8, fsdp+megatron, recompute=full",
                         "fsdp=8,tp=8, fsdp+megatron+sequence, recompute=full",
                         "fsdp=8,tp=8, fsdp+megatron+features, recompute=full",
                         "fsdp=8,tp=8, fsdp+sequence, recompute=full", "fsdp=8,tp=8, fsdp+features, recompute=full"));
}

}  // namespace
}  // namespace tessera::plan

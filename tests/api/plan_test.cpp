#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/tessera.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string error_of(std::string_view json) {
  try {
    Plan::from_json(json, "plan.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    return error.what();
  }
  return "";
}

TEST(Plan, reads_what_it_writes) {
  Plan plan;
  plan.mesh = "dp=2,tp=2";
  plan.presets = "dp+megatron";
  plan.annotations = {{"h.*.weight=[-,tp]"}, {"y=[?,-]"}};
  plan.shapes = {{"batch", 8}};
  plan.ring_attention = "always";
  plan.overlap = "off";
  plan.partial_sums = "operands";
  plan.dtype = DType::bfloat16;
  Plan read = Plan::from_json(plan.to_json());
  EXPECT_EQ(read.mesh, plan.mesh);
  EXPECT_EQ(read.presets, plan.presets);
  EXPECT_EQ(read.shapes, plan.shapes);
  EXPECT_EQ(read.ring_attention, "always");
  EXPECT_EQ(read.overlap, "off");
  EXPECT_EQ(read.partial_sums, "operands");
  EXPECT_EQ(read.dtype, DType::bfloat16);
  ASSERT_EQ(read.annotations.size(), 2u);
  EXPECT_EQ(read.annotations[0].text, "h.*.weight=[-,tp]");
  EXPECT_EQ(read.annotations[1].text, "y=[?,-]");
}

TEST(Plan, knows_dtypes_by_all_their_names) {
  for (const char* name : {"float32", "fp32", "float"})
    EXPECT_EQ(Plan::from_json(std::string(R"({"dtype": ")") + name + "\"}").dtype, DType::float32) << name;
  for (const char* name : {"bfloat16", "bf16"})
    EXPECT_EQ(Plan::from_json(std::string(R"({"dtype": ")") + name + "\"}").dtype, DType::bfloat16) << name;
  for (const char* name : {"float16", "fp16"})
    EXPECT_EQ(Plan::from_json(std::string(R"({"dtype": ")") + name + "\"}").dtype, DType::float16) << name;
  for (const char* name : {"int8", "double", ""})
    EXPECT_THAT(error_of(std::string(R"({"dtype": ")") + name + "\"}"), HasSubstr("name one of these")) << name;
}

TEST(Plan, limits_changes_of_layout) {
  const Plan file = Plan::from_json(R"({"max_reshard_bytes": 4096})");
  EXPECT_EQ(file.max_reshard_bytes, 4096);
  EXPECT_EQ(Plan::from_json(file.to_json()).max_reshard_bytes, 4096);
  Plan user;
  EXPECT_EQ(user.over(file).max_reshard_bytes, 4096);
  user.max_reshard_bytes = 0;
  EXPECT_EQ(user.over(file).max_reshard_bytes, 0);
}

TEST(Plan, has_micro_batches_of_a_training_step) {
  const Plan file = Plan::from_json(R"({"micro_batches": 4})");
  EXPECT_EQ(file.micro_batches, 4);
  EXPECT_EQ(Plan::from_json(file.to_json()).micro_batches, 4);
  Plan user;
  EXPECT_EQ(user.over(file).micro_batches, 4);
  user.micro_batches = 2;
  EXPECT_EQ(user.over(file).micro_batches, 2);
  EXPECT_EQ(Plan().to_json().find("micro_batches"), std::string::npos);
  for (const char* wrong : {"0", "-1", "1.5", "\"4\""})
    EXPECT_THROW(Plan::from_json(std::string(R"({"micro_batches": )") + wrong + "}"), Error) << wrong;
}

TEST(Plan, has_a_pipeline) {
  const Plan file = Plan::from_json(R"({"pipeline": "interleaved:2", "stages": "7,9,9,7"})");
  EXPECT_EQ(file.pipeline, "interleaved:2");
  EXPECT_EQ(file.stages, "7,9,9,7");
  const Plan again = Plan::from_json(file.to_json());
  EXPECT_EQ(again.pipeline, "interleaved:2");
  EXPECT_EQ(again.stages, "7,9,9,7");
  Plan user;
  user.stages = "auto";
  EXPECT_EQ(user.over(file).pipeline, "interleaved:2");
  EXPECT_EQ(user.over(file).stages, "auto");
  EXPECT_THAT(error_of(R"({"stages": [7, 9]})"), HasSubstr("7,9,9,7"));
}

TEST(Plan, overrides_a_weaker_one) {
  Plan user;
  user.presets = "dp";
  user.annotations = {{"x=[dp,-]"}};
  user.shapes = {{"batch", 8}};
  user.dtype = DType::float32;
  Plan file = Plan::from_json(
      R"({"presets": "megatron", "mesh": "tp=2", "annotations": ["x=[-,-]"], "shapes": {"batch": 2, "sequence": 64},
          "dtype": "bfloat16"})");
  Plan both = user.over(file);
  EXPECT_EQ(both.presets, "dp");
  EXPECT_EQ(both.mesh, "tp=2");
  EXPECT_EQ(both.dtype, DType::float32);
  EXPECT_THAT(both.shapes, ElementsAre(Pair("batch", 8), Pair("sequence", 64)));
  ASSERT_EQ(both.annotations.size(), 2u);
  EXPECT_EQ(both.annotations[0].by, "annotation");
  EXPECT_THAT(both.annotations[1].by, HasSubstr("plan file"));
}

TEST(Plan, refuses_what_is_not_its_own) {
  EXPECT_THAT(error_of(R"({"preset": "dp"})"), HasSubstr("plan.json: a plan has no key 'preset'; its keys are: mesh"));
  EXPECT_THAT(error_of(R"({"presets": 3})"), HasSubstr("'presets' has type number, but must be a string"));
  EXPECT_THAT(error_of(R"({"annotations": {"w": "[-]"}})"), HasSubstr("must be a list of strings"));
  EXPECT_THAT(error_of(R"({"annotations": [1]})"), HasSubstr("must be a string"));
  EXPECT_THAT(error_of(R"({"shapes": ["batch"]})"), HasSubstr("must map symbols to sizes"));
  EXPECT_THAT(error_of(R"({"shapes": {"batch": 1.5}})"),
              HasSubstr("'batch' has type number, but must be a whole number"));
  EXPECT_THAT(
      error_of(R"({"dtype": "int3"})"),
      HasSubstr("plan.json: models compute in float32 (fp32), bfloat16 (bf16) or float16 (fp16), not in 'int3'"));
  EXPECT_THAT(error_of("[]"), HasSubstr("a plan is an object"));
  EXPECT_THAT(error_of(R"({"presets": "dp", "presets": "megatron"})"), HasSubstr("'presets' is given twice"));
  EXPECT_THAT(error_of("{\"presets\": "), HasSubstr("plan.json is not JSON: parse error at line 1"));
}

}  // namespace
}  // namespace tessera

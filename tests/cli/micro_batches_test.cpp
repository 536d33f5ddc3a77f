// --micro-batches of commands that do not train.
#include "cli/command_line.h"

namespace tessera {
namespace {

class MicroBatchOptions : public CommandLine {
 protected:
  std::string x(int64_t batch) { return npz("x.npz", "x", test::ramp({batch, 8})); }
};

TEST_F(MicroBatchOptions, RunInTheOrderOfTheBatch) {
  const std::string run = "run " + model_ + " --quiet --inputs " + x(8) + " --outputs " + (folder_ / "").string();
  for (const char* options : {"whole.npz", "parts.npz --micro-batches 4", "mesh.npz --micro-batches 2 --mesh dp=2"})
    EXPECT_EQ(tessera(run + options).code, 0) << options;
  const std::string whole = contents(folder_ / "whole.npz");
  EXPECT_EQ(contents(folder_ / "parts.npz"), whole);
  EXPECT_EQ(contents(folder_ / "mesh.npz"), whole);
}

TEST_F(MicroBatchOptions, AreTakenByAllThatCompile) {
  const std::string parts = " --micro-batches 4 --shapes batch=8 --mesh dp=2";
  EXPECT_EQ(parsed("verify " + model_ + parts)["pass"], true);
  EXPECT_EQ(parsed("verify " + model_ + " --micro-batches 4")["pass"], true);
  EXPECT_EQ(parsed("verify " + model_ + " --mesh tp=2 --micro-batches 2 --inputs " + x(4))["pass"], true);
  const json shard = parsed("shard " + model_ + parts + " --dry-run");
  EXPECT_EQ(shard["inputs"][0]["shape"][0], "4*batch_part");
  EXPECT_EQ(shard["shapes"]["batch_part"], 2);
  EXPECT_EQ(parsed("check " + model_ + parts)["good"], true);
  EXPECT_EQ(parsed("bench " + model_ + parts + " --iterations 1 --warmup 0")["mesh"].size(), 1u);
  EXPECT_GT(parsed("simulate " + model_ + parts + " --cluster h100-sxm")["predicted"]["step_ms"], 0);
  EXPECT_EQ(parsed("explain " + model_ + parts + " y.part1")["tensor"], "y.part1");
  testing_io::put(folder_ / "plan.json", R"({"micro_batches": 2, "mesh": "dp=2"})");
  EXPECT_EQ(parsed("verify " + model_ + " --plan " + (folder_ / "plan.json").string())["pass"], true);
}

TEST_F(MicroBatchOptions, AreVerifiedWhereTheBatchIsANumber) {
  testing_io::put(folder_ / "fixed.onnxtxt",
                  "<ir_version: 10, opset_import: [\"\" : 24]>\ng (float[2, 4] x) => (float[2, 4] y) { y = Relu (x) }");
  const std::string verify = "verify " + (folder_ / "fixed.onnxtxt").string() + " --mesh dp=2 --micro-batches 3";
  EXPECT_EQ(parsed(verify)["pass"], true);
  EXPECT_THAT(mistake(verify + " --against onnxruntime"), HasSubstr("is a number, that of one part"));
}

TEST_F(MicroBatchOptions, AreInWrittenPrograms) {
  const std::string out = (folder_ / "out").string(), inputs = x(8);
  ASSERT_EQ(tessera("shard " + model_ + " --mesh dp=2 --micro-batches 2 --quiet -o " + out).code, 0);
  const std::string outputs = " --quiet --inputs " + inputs + " --outputs ";
  ASSERT_EQ(tessera("run " + out + outputs + (folder_ / "a.npz").string()).code, 0);
  ASSERT_EQ(tessera("run " + model_ + outputs + (folder_ / "b.npz").string()).code, 0);
  EXPECT_EQ(contents(folder_ / "a.npz"), contents(folder_ / "b.npz"));
}

TEST_F(MicroBatchOptions, RefuseBatchesThatTheyDoNotDivide) {
  const std::string run = "run " + model_ + " --micro-batches 4 ";
  EXPECT_THAT(mistake(run + "--shapes batch=6"), HasSubstr("a batch of 6 cannot be cut into 4 equal micro-batches"));
  EXPECT_THAT(mistake(run + "--inputs " + x(6)),
              HasSubstr("dimension 0 has extent 6, but the model needs 4*batch_part"));
  EXPECT_THAT(mistake("generate " + model_ + " --ids 1 --micro-batches 2"), HasSubstr("leave out --micro-batches"));
  EXPECT_THAT(mistake("annotate " + model_ + " --mesh dp=2 --micro-batches 2 -o " + (folder_ / "a.onnx").string()),
              HasSubstr("leave out --micro-batches"));
}

}  // namespace
}  // namespace tessera

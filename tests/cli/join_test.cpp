// Models that a framework has split, from the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/small_model.h"
#include "cli/run_command.h"
#include "tessera/io/npz.h"
#include "tessera/ir/text.h"
#include "tessera/onnx/export.h"

namespace tessera::test {
namespace {

using testing::HasSubstr;
using testing_io::TemporaryFolder;

void write_ranks(const TemporaryFolder& folder, const std::string& second) {
  int rank = 0;
  for (const std::string& text :
       {std::string("a (float[2] x) => (float[2] y) { [sum] y = com.microsoft.AllReduce (x) }"), second})
    export_model(parse_text(R"(<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]> )" + text),
                 folder / ("rank_" + std::to_string(rank++) + ".onnx").c_str());
}

TEST(JoinCommand, RanksFilesAreCheckedAndRun) {
  TemporaryFolder folder;
  write_ranks(folder, "b (float[2] x) => (float[2] y) { n = Add (x, x) [sum] y = com.microsoft.AllReduce (n) }");
  write_npz(folder / "in.npz", {{"x", Tensor::of<float>(DType::float32, {2}, {1, 2})}});
  write_npz(folder / "own.npz", {{"x@0", Tensor::of<float>(DType::float32, {2}, {1, 2})},
                                 {"x@1", Tensor::of<float>(DType::float32, {2}, {10, 20})}});
  const std::string tessera = TESSERA_BINARY, models = "'" + (folder / "rank_{}.onnx").string() + "'";
  const std::string out = (folder / "out.npz").string();
  auto first_of = [&](const std::string& inputs) {
    const Ran ran = run_command(
        tessera + " run " + models + " --inputs " + (folder / inputs.c_str()).string() + " --outputs " + out, folder);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return read_npz(out).at("y").as<float>()[0];
  };
  EXPECT_EQ(first_of("in.npz"), 3);
  EXPECT_EQ(first_of("own.npz"), 21);
  EXPECT_EQ(run_command(tessera + " check " + models, folder).code, 0);
  const Ran preset = run_command(tessera + " check " + models + " --preset dp", folder);
  EXPECT_EQ(preset.code, 2);
  EXPECT_THAT(preset.err, HasSubstr("is split already"));
}

TEST(JoinCommand, RanksThatDoNotFitTogetherAreRefused) {
  TemporaryFolder folder;
  write_ranks(folder, "b (float[2] x) => (float[2] y) { y = Neg (x) }");
  write_npz(folder / "in.npz", {{"x", Tensor::of<float>(DType::float32, {2}, {1, 2})}});
  const std::string tessera = TESSERA_BINARY, models = "'" + (folder / "rank_{}.onnx").string() + "'";
  const Ran checked = run_command(tessera + " check " + models, folder);
  EXPECT_EQ(checked.code, 1);
  EXPECT_THAT(checked.out, HasSubstr("rank 0 waits for rank 1 at tessera.comm.AllReduce 'sum'"));
  const Ran ran = run_command(tessera + " run " + models + " --inputs " + (folder / "in.npz").string(), folder);
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("fix the ranks' models"));
}

TEST(JoinCommand, CheckAndRunAgreeOnFilesOfWrittenPrograms) {
  TemporaryFolder folder;
  const std::string tessera = TESSERA_BINARY, model = write_model(folder, kPair).string();
  write_npz(folder / "in.npz", {{"x", ramp({3, 8})}});
  const std::string in = " --inputs " + (folder / "in.npz").string();
  auto code = [&](const std::string& words) { return run_command(tessera + " " + words + " --quiet", folder).code; };
  const struct {
    const char *mesh, *form, *file;
    int code;
  } cases[] = {{"tp=2", "spmd", "model.onnx", 0},
               {"dp=2", "spmd", "model.onnx", 2},
               {"dp=2", "parallel-for", "model.onnx", 0},
               {"tp=2", "mpmd", "rank_0.onnx", 2}};
  for (const auto& each : cases) {
    const std::string out = (folder / "out").string(), mesh = std::string(" --mesh ") + each.mesh;
    ASSERT_EQ(code("shard " + model + mesh + " --form " + each.form + " -o " + out), 0);
    const std::string file = out + "/" + each.file + mesh;
    EXPECT_EQ(code("check " + file), each.code) << file;
    EXPECT_EQ(code("run " + file + in), each.code) << file;
  }
}

}  // namespace
}  // namespace tessera::test

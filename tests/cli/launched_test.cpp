// Ranks that others have started: mpirun, and torchrun as its variables.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "launchers.h"
#include "tessera/io/npz.h"
#include "tessera/ir/text.h"
#include "tessera/onnx/export.h"

namespace tessera {
namespace {

using test::Ran;
using test::run_command;
using testing::AllOf;
using testing::HasSubstr;
using testing_io::contents;
using testing_io::put;
using testing_io::TemporaryFolder;

const std::string kBinary = TESSERA_BINARY;
const std::string kData = TESSERA_TEST_DATA;

class Launched : public testing::TestWithParam<test::Launcher> {
 protected:
  void SetUp() override {
    if (const std::string why = test::missing(GetParam().engine, folder_); !why.empty()) GTEST_SKIP() << why;
  }
  Ran run(int ranks, const std::string& arguments) const {
    return run_command(GetParam().start(ranks, kBinary + " " + arguments), folder_);
  }
  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }

  TemporaryFolder folder_;
  const std::string mlp_ = kData + "/models/mlp/model.onnx", tiny_ = std::string(TESSERA_EXAMPLES) + "/tiny/model.onnx";
};

INSTANTIATE_TEST_SUITE_P(Engines, Launched, testing::Values(test::kMpirun, test::kTorchrun), test::engine_of);

TEST_P(Launched, gives_the_outputs_of_threads) {
  const std::string options = "run " + tiny_ + " --mesh tp=2 --threads 1";
  ASSERT_EQ(run_command(kBinary + " " + options + " --outputs " + file("threads.npz"), folder_).code, 0);
  const Ran ran = run(2, options + " --repeat 2 --outputs " + file("ranks.npz"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out.find("ran in"), ran.out.rfind("ran in")) << "one rank speaks for all";
  EXPECT_EQ(contents(file("threads.npz")), contents(file("ranks.npz")));  // two addends have one sum
}

TEST_P(Launched, gives_the_bits_of_threads_where_ranks_share_memory) {
  const std::string options = "run " + tiny_ + " --mesh tp=4 --threads 1";
  ASSERT_EQ(run_command(kBinary + " " + options + " --outputs " + file("threads.npz"), folder_).code, 0);
  const Ran ran = run(4, options + " --share-memory --outputs " + file("ranks.npz"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(contents(file("threads.npz")), contents(file("ranks.npz"))) << "sums are in member order";
}

TEST_P(Launched, verifies_meshes_of_groups) {
  const Ran ran = run(4, "verify " + tiny_ + " --mesh dp=2,tp=2 --threads 1");
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("pass"));
}

TEST_P(Launched, runs_written_programs) {
  ASSERT_EQ(run_command(kBinary + " shard " + mlp_ + " --mesh tp=3 -o " + file("out"), folder_).code, 0);
  const Ran ran = run(3, "run " + file("out") + " --threads 1 --inputs " + kData + "/models/mlp/inputs_0.npz");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("mesh tp=3 (3 ranks)"));
}

// Steps on states that are stored split, with the states saved and loaded again by ranks of their own.
TEST_P(Launched, steps_as_threads_do) {
  const std::string model = kData + "/models/steps/mlp-sgd/model.onnx";
  const std::string options = " --mesh dp=2 --threads 1 --steps 3 --seed 5";
  const std::string states = " --state '*=next.*' --store '*=[dp,...]'";
  ASSERT_EQ(run_command(kBinary + " run " + model + states + options + " --outputs " + file("threads.npz") +
                            " --save-states " + file("threads_after.npz"),
                        folder_)
                .code,
            0);
  const Ran ran = run(2, "run " + model + states + options + " --outputs " + file("ranks.npz") + " --save-states " +
                             file("ranks_after.npz"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(contents(file("threads.npz")), contents(file("ranks.npz")));
  EXPECT_EQ(contents(file("threads_after.npz")), contents(file("ranks_after.npz")));
  const Ran again = run(2, "run " + model + states + options + " --load-states " + file("ranks_after.npz") +
                               " --save-states " + file("twice.npz"));
  EXPECT_EQ(again.code, 0) << again.err;
  ASSERT_EQ(run_command(kBinary + " run " + model + " --state '*=next.*' --mesh dp=2 --threads 1 --steps 6 --seed 5" +
                            " --store '*=[dp,...]' --save-states " + file("six.npz"),
                        folder_)
                .code,
            0);
  EXPECT_EQ(contents(file("twice.npz")), contents(file("six.npz")));
}

// Ranks join groups in which others communicate, whether they have something to say there or not.
TEST_P(Launched, ranks_may_have_nothing_to_say) {
  const std::string header = R"(<ir_version: 10, opset_import: ["" : 20, "tessera.comm" : 1]> g )";
  int rank = 0;
  for (const std::string text : {R"((float[2] x) => (float[2] y) <int64 peer = {1}> {
             = tessera.comm.Send <axes = ["a"], value = "v"> (x, peer)  y = Neg (x) })",
                                 R"((float[2] x) => (float[2] y) <int64 peer = {0}, int64[1] shape = {2}> {
             r = tessera.comm.Recv <axes = ["a"], value = "v", dtype = 1> (peer, shape)  y = Add (x, r) })",
                                 R"((float[2] x) => (float[2] y) { y = Neg (x) })"})
    export_model(parse_text(header + text), folder_ / ("rank_" + std::to_string(rank++) + ".onnx").c_str());
  write_npz(folder_ / "in.npz", {{"x", Tensor::of<float>(DType::float32, {2}, {1, 2})}});
  const Ran ran = run(3, "run --mesh a=3 --own y " + file("rank_{}.onnx") + " --inputs " + file("in.npz") +
                             " --threads 1 --timeout 10 --join-timeout 10");
  EXPECT_EQ(ran.code, 0) << ran.err;
}

// Each rank has a device of its own, though the launcher numbers no ranks of a machine.
TEST_P(Launched, ranks_find_their_number_on_the_machine) {
  put(file("rank.sh"),
      "unset LOCAL_RANK LOCAL_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE\nexec " + kBinary +
          " run " + mlp_ + " --mesh tp=2 --threads 1 --device $1\n");
  const auto on = [&](const std::string& device) {
    return run_command(GetParam().start(2, "sh " + file("rank.sh") + " " + device), folder_);
  };
  EXPECT_EQ(on("simulated:2x1G").code, 0);
  const Ran refused = on("simulated:1x1G");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("'simulated:1x1G' is a machine with 1 device, but its rank 1 (from 0)"));
}

TEST_P(Launched, says_once_that_the_mesh_is_of_another_size) {
  const Ran ran = run(2, "run " + mlp_ + " --mesh tp=3");
  EXPECT_EQ(ran.code, 2);
  const std::string message = "the mesh tp=3 of 3 ranks is given, but 2 processes were started";
  EXPECT_THAT(ran.err, HasSubstr(message));
  EXPECT_EQ(ran.err.find(message), ran.err.rfind(message)) << ran.err;
}

TEST_P(Launched, a_killed_rank_ends_the_others) {
  // Rank 1 kills itself in the middle of its runs.
  const std::string script = file("rank.sh");
  put(script, "if [ \"${OMPI_COMM_WORLD_RANK-$RANK}\" = 1 ]; then (sleep 1; kill -9 $$) & fi\nexec " + kBinary +
                  " run " + mlp_ + " --mesh tp=3 --threads 1 --repeat 100000000 --timeout 20\n");
  const Ran ran = run_command(GetParam().start(3, "sh " + script), folder_);
  EXPECT_NE(ran.code, 0);
  EXPECT_THAT(ran.err, HasSubstr("rank 1"));
}

TEST_P(Launched, a_stalled_rank_is_named_and_ends_too) {
  const Ran ran =
      run_command("TESSERA_FAULT=rank=1,operation=2,do=stall " +
                      GetParam().start(3, kBinary + " run " + mlp_ + " --mesh tp=3 --threads 1 --timeout 1 --repeat 9" +
                                              " --flight-record " + file("flight.json")),
                  folder_);
  EXPECT_NE(ran.code, 0);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("missing: rank 1"), HasSubstr("rank 1 says nothing")));
}

// Whole models on every engine, against the answers that came with them.
class LaunchedModels : public Launched {
 protected:
  void expect_answers(const std::string& model, const std::string& place) const {
    const auto wanted = read_npz(kData + "/models/" + model + "/outputs_0.npz"), made = read_npz(file("out.npz"));
    ASSERT_EQ(made.size(), wanted.size()) << place;
    for (const auto& [name, want] : wanted) {
      const Tensor& got = made.at(name);
      ASSERT_EQ(got.dims, want.dims) << place << " " << name;
      double largest = 0, worst = 0;
      for (int64_t i = 0; i < want.count(); ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(want.as<float>()[i])));
        worst = std::max(worst, std::abs(static_cast<double>(got.as<float>()[i]) - want.as<float>()[i]));
      }
      EXPECT_LE(worst, 2e-5 * largest) << place << " " << name;
    }
  }
  void run_and_expect_answers(const std::string& model, int ranks, const std::string& what) const {
    const Ran ran = run(ranks, "run " + what + " --threads 1 --quiet --timeout 30 --inputs " + kData + "/models/" +
                                   model + "/inputs_0.npz --outputs " + file("out.npz"));
    ASSERT_EQ(ran.code, 0) << what << "\n" << ran.err;
    expect_answers(model, what);
    std::filesystem::remove(file("out.npz"));
  }
};
INSTANTIATE_TEST_SUITE_P(Engines, LaunchedModels, testing::Values(test::kSpawn, test::kMpirun, test::kTorchrun),
                         test::engine_of);

struct Split {
  const char* model;
  int ranks;
  const char* options;
};

TEST_P(LaunchedModels, give_the_answers_that_came_with_them) {
  for (const Split& split : {Split{"mlp", 2, "--mesh tp=2"},
                             {"gpt2", 2, "--mesh tp=2"},
                             {"gpt2", 2, "--mesh dp=2"},
                             {"gpt2", 4, "--mesh dp=2,tp=2"},
                             {"gpt2", 2, "--mesh tp=2 --preset megatron+sequence"}})
    run_and_expect_answers(split.model, split.ranks, kData + "/models/" + split.model + "/model.onnx " + split.options);
}

TEST_P(LaunchedModels, are_timed_on_all_ranks) {
  const Ran ran =
      run(3, "bench " + kData + "/models/mlp/model.onnx --mesh tp=3 --threads 1 --iterations 2 --json --profile " +
                 file("trace.json"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  const nlohmann::json report = nlohmann::json::parse(ran.out);
  ASSERT_EQ(report["ranks"].size(), 3u);
  for (const nlohmann::json& rank : report["ranks"]) EXPECT_GT(rank["compute_ms"], 0);
  std::set<int> tracks;
  const nlohmann::json trace = nlohmann::json::parse(contents(file("trace.json")));
  for (const nlohmann::json& event : trace["traceEvents"])
    if (event["ph"] == "X") tracks.insert(event["tid"].get<int>());
  EXPECT_EQ(tracks, (std::set<int>{0, 1, 2}));
}

TEST_P(LaunchedModels, give_them_as_written_programs) {
  for (const char* form : {"mpmd", "spmd"}) {
    ASSERT_EQ(run_command(kBinary + " shard " + kData + "/models/gpt2/model.onnx --mesh dp=2,tp=2 --quiet --form " +
                              form + " -o " + file(form),
                          folder_)
                  .code,
              0);
    run_and_expect_answers("gpt2", 4, file(form));
  }
}

TEST(LaunchedEngines, are_refused_where_they_contradict_the_launcher) {
  TemporaryFolder folder;
  auto mistake = [&](const std::string& variables, const std::string& options) {
    const Ran ran = run_command("env " + variables + " " + kBinary + " run none.onnx " + options, folder);
    EXPECT_EQ(ran.code, 2);
    return ran.err;
  };
  EXPECT_THAT(mistake("", "--engine mpi"), HasSubstr("mpirun -n"));
  EXPECT_THAT(mistake("", "--engine processes"), HasSubstr("--spawn"));
  EXPECT_THAT(mistake("", "--engine mpi --spawn 2"), HasSubstr("leave one of them out"));
  EXPECT_THAT(mistake("RANK=0", ""), HasSubstr("WORLD_SIZE is not"));
  EXPECT_THAT(mistake("RANK=0", "--engine threads"), HasSubstr("none.onnx"));
}

TEST(Plugin, of_another_build_is_refused) {
  TemporaryFolder folder;
  const std::string environment = std::string("env TESSERA_PLUGIN_PATH=") + TESSERA_OTHER_BUILD +
                                  " RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29999 " + kBinary;
  const Ran ran = run_command(environment + " run " + kData + "/models/mlp/model.onnx", folder);
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("libtessera_gloo.so is of another build of tessera"),
                             HasSubstr("its interface is 0123456789abcdef, this one's "),
                             HasSubstr("install the one that came with it")));
  EXPECT_THAT(run_command(environment + " info --json", folder).out, HasSubstr("is of another build of tessera"));
}

}  // namespace
}  // namespace tessera

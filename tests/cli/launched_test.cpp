// Ranks that others have started: mpirun, and torchrun as its variables.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "run_command.h"

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

/// How a kind of launcher starts a command as so many ranks.
struct Launcher {
  std::string engine;
  std::string (*start)(int ranks, const std::string& command);

  friend std::ostream& operator<<(std::ostream& stream, const Launcher& launcher) { return stream << launcher.engine; }
};

/// Open MPI leaks, from parts of its own that it has unloaded by then.
std::string by_mpirun(int ranks, const std::string& command) {
  return "LSAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n " +
         std::to_string(ranks) + " " + command;
}

/// A process for each rank with the variables that torchrun sets. The code is the largest.
std::string by_torchrun(int ranks, const std::string& command) {
  const std::string size = std::to_string(ranks), port = std::to_string(20000 + getpid() % 10000);
  return "sh -c 'pids=; for rank in $(seq 0 " + std::to_string(ranks - 1) + "); do RANK=$rank LOCAL_RANK=$rank" +
         " WORLD_SIZE=" + size + " LOCAL_WORLD_SIZE=" + size + " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port + " " +
         command + " & pids=\"$pids $!\"; done; " +
         "code=0; for pid in $pids; do wait $pid; c=$?; [ $c -gt $code ] && code=$c; done; exit $code'";
}

class Launched : public testing::TestWithParam<Launcher> {
 protected:
  void SetUp() override {
    const Ran info = run_command(kBinary + " info --json", folder_);
    const size_t engine = info.out.find("\"name\": \"" + GetParam().engine + "\"");
    ASSERT_NE(engine, std::string::npos) << info.out;
    const size_t usable = info.out.find("\"usable\": ", engine);
    if (info.out.compare(usable, 14, "\"usable\": true") != 0) GTEST_SKIP() << "no " << GetParam().engine << " here";
  }
  Ran run(int ranks, const std::string& arguments) const {
    return run_command(GetParam().start(ranks, kBinary + " " + arguments), folder_);
  }
  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }

  TemporaryFolder folder_;
  const std::string mlp_ = kData + "/models/mlp/model.onnx", tiny_ = std::string(TESSERA_EXAMPLES) + "/tiny/model.onnx";
};

INSTANTIATE_TEST_SUITE_P(Engines, Launched, testing::Values(Launcher{"mpi", by_mpirun}, Launcher{"gloo", by_torchrun}),
                         [](const auto& info) { return info.param.engine; });

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
                  " run " + mlp_ + " --mesh tp=3 --threads 1 --repeat 1000000 --timeout 20\n");
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
  EXPECT_THAT(ran.err, AllOf(HasSubstr("not come: rank 1"), HasSubstr("rank 1 says nothing")));
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

}  // namespace
}  // namespace tessera

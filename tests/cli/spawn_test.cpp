// Ranks as processes: what tessera run --spawn N starts, and how all of it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

#include "api/small_model.h"
#include "processes_with.h"
#include "run_command.h"
#include "started.h"

namespace tessera {
namespace {

using test::processes_with;
using test::Ran;
using test::run_command;
using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing_io::contents;
using testing_io::put;

#ifndef TESSERA_THREAD_SANITIZER  // it keeps for itself the addresses where ranks share memory

const std::string kCommand = TESSERA_BINARY;

std::string model_in(const TemporaryFolder& folder) {
  return test::write_model(folder, test::kPair).string();
}

/// The process of a rank, once it is one; else none.
std::optional<pid_t> process_of(int rank, const std::string& word) {
  for (pid_t process : processes_with(word))
    if (test::contents_in_proc("/proc/" + std::to_string(process) + "/environ")
            .find("TESSERA_RANK=" + std::to_string(rank)) != std::string::npos)
      return process;
  return std::nullopt;
}

/// Whether the condition becomes true within ten seconds.
template <typename Condition>
bool soon(Condition condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(Spawn, gives_the_outputs_of_threads) {
  TemporaryFolder folder;
  const std::string model = model_in(folder), options = " run " + model + " --mesh tp=3 --threads 1 --shapes batch=7";
  const std::string threads = (folder / "threads.npz").string(), processes = (folder / "processes.npz").string();
  Ran ran = run_command(kCommand + options + " --outputs " + threads, folder);
  ASSERT_EQ(ran.code, 0) << ran.err;
  // However slow the machine is, nothing is said of that.
  ran = run_command(
      "TESSERA_PROGRESS_AFTER=1000 " + kCommand + options + " --spawn 3 --repeat 3 --outputs " + processes, folder);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
  EXPECT_THAT(ran.out, HasSubstr("mesh tp=3 (3 ranks)"));
  EXPECT_EQ(ran.out.find("ran in"), ran.out.rfind("ran in")) << "one rank speaks for all";
  EXPECT_EQ(contents(threads), contents(processes));
}

TEST(Spawn, runs_written_programs_whose_ranks_have_models_of_their_own) {
  TemporaryFolder folder;
  const std::string mlp = std::string(TESSERA_TEST_DATA) + "/models/mlp/", out = (folder / "out").string();
  ASSERT_EQ(run_command(kCommand + " shard " + mlp + "model.onnx --mesh tp=3 -o " + out, folder).code, 0);
  const Ran ran = run_command(kCommand + " run " + out + " --spawn 3 --inputs " + mlp + "inputs_0.npz", folder);
  EXPECT_EQ(ran.code, 0) << ran.err;
}

TEST(Spawn, one_rank_is_no_special_case) {
  TemporaryFolder folder;
  const Ran ran = run_command(kCommand + " run " + model_in(folder) + " --spawn 1 --json", folder);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("\"outputs\""));
}

TEST(Spawn, verifies_and_times_too) {
  TemporaryFolder folder;
  const std::string model = model_in(folder);
  Ran ran = run_command(kCommand + " verify " + model + " --mesh tp=2 --spawn 2 --first-diverging", folder);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("no tensor of one device and of the mesh differs"), HasSubstr("\npass\n")));
  ran = run_command(kCommand + " verify " + model + " --mesh tp=2 --spawn 2 --rtol 0 --atol 0 --quiet", folder);
  EXPECT_THAT(ran.code, testing::AnyOf(0, 1));
  ran = run_command(kCommand + " bench " + model + " --mesh tp=2 --spawn 2 --iterations 3", folder);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("throughput"));
}

TEST(Spawn, says_a_mistake_once) {
  TemporaryFolder folder;
  const std::string model = model_in(folder);
  Ran ran = run_command(kCommand + " run " + (folder / "none.onnx").string() + " --mesh tp=2 --spawn 2", folder);
  EXPECT_EQ(ran.code, 2);
  EXPECT_EQ(ran.err.find("none.onnx"), ran.err.rfind("none.onnx")) << ran.err;
  ran = run_command(kCommand + " run " + model + " --mesh tp=3 --spawn 2", folder);
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("the mesh tp=3 of 3 ranks is given, but 2 processes were started"));
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  ran = run_command(kCommand + " run " + model + " --spawn 2", folder);
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("no mesh of 1 rank is given, but 2 processes were started; name a mesh of 2 ranks"));
  ran = run_command("env TESSERA_RANK=1 " + kCommand + " run " + model, folder);
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("TESSERA_RANK is set, but not TESSERA_WORLD_SIZE"));
}

// However the parent ends, its ranks end, too.
class SpawnEnds : public testing::TestWithParam<int> {};

TEST_P(SpawnEnds, with_its_parent) {
  TemporaryFolder folder;
  const std::string model = model_in(folder);
  const pid_t parent = test::start(folder, {TESSERA_BINARY, "run", model, "--mesh", "tp=2", "--spawn", "2", "--repeat",
                                            "1000000", "--quiet", "--threads", "1"});
  ASSERT_GT(parent, 0);
  ASSERT_TRUE(soon([&] { return process_of(0, model) && process_of(1, model); }));
  kill(parent, GetParam());
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), GetParam());
  EXPECT_TRUE(soon([&] { return processes_with(model).empty(); }));
}

INSTANTIATE_TEST_SUITE_P(By, SpawnEnds, testing::Values(SIGINT, SIGTERM, SIGKILL));

TEST(Spawn, names_a_rank_that_is_killed) {
  for (int killed : {0, 1}) {
    TemporaryFolder folder;
    const std::string model = model_in(folder), err = (folder / "stderr").string();
    const pid_t shell =
        test::start(folder, {"/bin/sh", "-c",
                             "exec " + kCommand + " run " + model +
                                 " --mesh tp=2 --spawn 2 --repeat 1000000 --quiet --threads 1 2>" + err});
    ASSERT_TRUE(soon([&] { return process_of(killed, model).has_value(); }));
    kill(*process_of(killed, model), SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(shell, &status, 0), shell);
    EXPECT_EQ(WEXITSTATUS(status), 3);
    EXPECT_THAT(contents(err), HasSubstr("rank " + std::to_string(killed) + " died (killed by signal 9, Killed)"));
    EXPECT_TRUE(processes_with(model).empty());
  }
}

// A rank that does not even run (as under a debugger) is named by the others, and killed after them.
TEST(Spawn, does_not_wait_for_a_rank_that_is_stopped) {
  TemporaryFolder folder;
  const std::string model = model_in(folder), err = (folder / "stderr").string();
  const pid_t shell = test::start(folder, {"/bin/sh", "-c",
                                           "exec " + kCommand + " run " + model +
                                               " --mesh tp=2 --spawn 2 --repeat 1000000 --quiet --threads 1 "
                                               "--timeout 0.5 2>" +
                                               err});
  ASSERT_TRUE(soon([&] { return process_of(1, model).has_value(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  kill(*process_of(1, model), SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(shell, &status, 0), shell);
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_THAT(contents(err), HasSubstr("gave up after 500 ms"));
  EXPECT_TRUE(processes_with(model).empty());
}

#endif

}  // namespace
}  // namespace tessera

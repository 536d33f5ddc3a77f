// An interrupted run, and a run on a full disk: both end soon, and leave earlier files alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "api/small_model.h"
#include "launchers.h"
#include "processes_with.h"
#include "started.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::start;
using test::TemporaryFolder;
using testing_io::contents;
using testing_io::put;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class Interrupted : public testing::TestWithParam<int> {};

// Wherever it was: reading, compiling, preparing, running or writing.
TEST_P(Interrupted, ends_at_once_and_leaves_nothing_half_written) {
  TemporaryFolder folder;
  fs::create_directory(folder / "out");
  put(folder / "out/y.npz", "old");
  const std::string model = test::write_model(folder, test::kPair).string();
  const pid_t child = start(folder, {TESSERA_BINARY, "run", model, "--mesh", "tp=2", "--shapes", "batch=3000000",
                                     "--outputs", (folder / "out/y.npz").string(), "--quiet", "--repeat", "1000000"});
  ASSERT_GT(child, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(GetParam()));
  kill(child, SIGINT);
  const auto before = std::chrono::steady_clock::now();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const auto took = std::chrono::steady_clock::now() - before;
  EXPECT_LT(took, std::chrono::seconds(2));
  EXPECT_EQ(names_in(folder / "out"), std::vector<std::string>{"y.npz"});
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_EQ(contents(folder / "out/y.npz"), "old");
}

INSTANTIATE_TEST_SUITE_P(After, Interrupted, testing::Values(5, 100, 300, 700));

/// Products of large matrices, one after another: 34 TFLOP, in 32 MiB of activations.
std::string endless_model() {
  std::string text = "endless (float[2048, 2048] x, float[2048, 2048] w) => (float[2048, 2048] y) {\n";
  std::string last = "x";
  for (int i = 0; i < 2000; ++i) {
    const std::string next = "h" + std::to_string(i);
    text += next + " = MatMul (" + last + ", w)\n";
    last = next;
  }
  return text + "y = Relu (" + last + ")\n}";
}

/// A command that takes far longer than the test on any machine, and who starts its ranks.
struct Work {
  std::string name, command;
  test::Launcher launcher;
  std::string model = std::string(test::kPair);
};

class CtrlC : public testing::TestWithParam<Work> {};

#if defined(__SANITIZE_ADDRESS__) || defined(TESSERA_THREAD_SANITIZER)
constexpr std::chrono::seconds kSoon{10};
#else
constexpr std::chrono::seconds kSoon{2};
#endif

/// A process that has become Tessera; the launcher's command line holds Tessera's, too.
bool is_rank(pid_t process) {
  return test::contents_in_proc("/proc/" + std::to_string(process) + "/cmdline").starts_with(TESSERA_BINARY);
}

// A terminal sends the signal to all processes of the group at once.
TEST_P(CtrlC, ends_all_ranks_soon_and_never_well) {
  TemporaryFolder folder;
  if (const std::string why = test::missing(GetParam().launcher.engine, folder); !why.empty()) GTEST_SKIP() << why;
  const std::string model = test::write_model(folder, GetParam().model).string();
#ifdef TESSERA_SLOW_DISK
  const std::string disk = "LD_PRELOAD=" TESSERA_SLOW_DISK " ";
#else
  const std::string disk;
#endif
  // A shell makes background processes ignore the signal; launchers do not.
  const std::string command =
      GetParam().launcher.start(2, "env --default-signal=INT " + disk + std::string(TESSERA_BINARY) + " " +
                                       GetParam().command + " --mesh tp=2 --threads 1 " + model);
  for (const int wait : {50, 1500}) {
    SCOPED_TRACE(wait);
    const pid_t shell = fork();
    if (shell == 0) {
      setpgid(0, 0);
      const std::string quiet = "exec >" + (folder / "out").string() + " 2>&1; " + command;
      execl("/bin/sh", "sh", "-c", quiet.c_str(), nullptr);
      _exit(127);
    }
    ASSERT_GT(shell, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(wait));
    kill(-shell, SIGINT);
    const auto interrupted = std::chrono::steady_clock::now();
    auto last_rank = interrupted, now = interrupted;
    int status = 0;
    bool ended = false;
    while (now < interrupted + 3 * kSoon) {
      ended = ended || waitpid(shell, &status, WNOHANG) == shell;
      const std::vector<pid_t> left = test::processes_with(model);
      now = std::chrono::steady_clock::now();
      if (std::any_of(left.begin(), left.end(), is_rank)) last_rank = now;
      if (ended && left.empty()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (!ended) kill(shell, SIGKILL), waitpid(shell, &status, 0);
    EXPECT_TRUE(ended);
    EXPECT_LT(last_rank - interrupted, kSoon) << contents(folder / "out");
    EXPECT_LT(now - interrupted, kSoon + GetParam().launcher.nap) << contents(folder / "out");
    EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << contents(folder / "out");
    EXPECT_THAT(contents(folder / "out"), testing::Not(testing::HasSubstr("--help"))) << "the command is valid";
    for (pid_t left : test::processes_with(model)) kill(left, SIGKILL);
  }
}

std::string by_threads(int, const std::string& command) {
  return "exec " + command;
}
const test::Launcher kThreadsOnly{"threads", by_threads};

std::vector<Work> all_work() {
  std::vector<Work> all;
  for (const test::Launcher& launcher : {kThreadsOnly, test::kSpawn, test::kMpirun, test::kTorchrun}) {
    all.push_back({"run_" + launcher.engine, "run --shapes batch=64 --repeat 100000000", launcher});
    all.push_back({"bench_" + launcher.engine, "bench --shapes batch=64 --iterations 10000000", launcher});
    all.push_back({"verify_" + launcher.engine, "verify", launcher, endless_model()});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Of, CtrlC, testing::ValuesIn(all_work()), [](const auto& info) { return info.param.name; });

TEST(FullDisk, leaves_the_old_outputs_and_no_litter) {
  TemporaryFolder folder;
  fs::create_directory(folder / "out");
  put(folder / "out/y.npz", "old");
  const std::string model = test::write_model(folder, test::kPair).string();
  const std::string command = "ulimit -f 8; exec " + std::string(TESSERA_BINARY) + " run " + model +
                              " --shapes batch=4000 --quiet --outputs " + (folder / "out/y.npz").string() + " 2>" +
                              (folder / "err").string();
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 3) << contents(folder / "err");
  EXPECT_THAT(contents(folder / "err"), testing::HasSubstr("nothing was changed there"));
  EXPECT_EQ(contents(folder / "out/y.npz"), "old");
  EXPECT_EQ(names_in(folder / "out"), std::vector<std::string>{"y.npz"});
}

}  // namespace
}  // namespace tessera

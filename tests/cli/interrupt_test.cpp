// A run that is interrupted, and one on a full disk: both end soon, and leave what was there before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "api/small_model.h"
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
                                     "--outputs", (folder / "out/y.npz").string(), "--quiet"});
  ASSERT_GT(child, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(GetParam()));
  kill(child, SIGINT);
  const auto before = std::chrono::steady_clock::now();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const auto took = std::chrono::steady_clock::now() - before;
  EXPECT_LT(took, std::chrono::seconds(20));
  EXPECT_EQ(names_in(folder / "out"), std::vector<std::string>{"y.npz"});
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;  // it was done before
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_EQ(contents(folder / "out/y.npz"), "old");
}

INSTANTIATE_TEST_SUITE_P(After, Interrupted, testing::Values(5, 100, 300, 700));

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

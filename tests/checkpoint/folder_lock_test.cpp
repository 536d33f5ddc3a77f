#include "tessera/checkpoint/folder_lock.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>

#include "checkpoint/fixture.h"

namespace tessera::checkpoint {
namespace {

using testing::ElementsAre;
using testing_io::put;
using testing_io::TemporaryFolder;

TEST(folder_lock, keeps_others_out_while_it_lives_and_leaves_nothing) {
  TemporaryFolder folder;
  {
    const FolderLock lock(folder.path());
    EXPECT_EQ(lock.problem(), "");
    expect_user_error([&] { FolderLock second(folder.path()); },
                      {folder.path().string(), "process " + std::to_string(getpid()) + " on host ", "another folder"});
  }
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
  const FolderLock again(folder.path());
}

TEST(folder_lock, dies_with_its_process) {
  TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const FolderLock lock(folder.path());
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  expect_user_error([&] { FolderLock second(folder.path()); }, {"process " + std::to_string(child)});
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  close(ready[0]);
  close(ready[1]);
  EXPECT_THAT(names_in(folder.path()), ElementsAre(".lock")) << "what is left of it holds nobody up";
  { const FolderLock after(folder.path()); }
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

// Each holder removes the file, which others may have opened before.
TEST(folder_lock, has_one_holder_at_a_time) {
  TemporaryFolder folder;
  constexpr int kProcesses = 4, kTurns = 50;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    for (int turn = 0; turn < kTurns;) {
      try {
        const FolderLock lock(folder.path());
        if (mkdir((folder / "held").c_str(), 0777) != 0 || rmdir((folder / "held").c_str()) != 0) _exit(1);
        ++turn;
      } catch (const Error&) {
        usleep(10);
      }
    }
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "two held it at once";
  }
}

TEST(folder_lock, runs_have_names_of_their_own) {
  std::set<std::string> names;
  for (int i = 0; i < 100; ++i) names.insert(new_run());
  EXPECT_EQ(names.size(), 100u);
  EXPECT_EQ(names.begin()->size(), 16u);
}

// Whoever puts a file of another run into a checkpoint.
TEST(folder_lock, a_checkpoint_with_another_runs_file_is_passed_over) {
  TemporaryFolder folder;
  save_step(folder.path(), 1);
  save_step(folder.path(), 2);
  TemporaryFolder other;
  save_step(other.path(), 2, 0, "fedcba9876543210");
  std::filesystem::copy(other / "step-000002/rank-1.bin", folder / "step-000002/rank-1.bin",
                        std::filesystem::copy_options::overwrite_existing);
  std::vector<std::string> passed_over;
  const auto found = Checkpoint::latest(folder.path(), passed_over, Verify::lazily);
  ASSERT_TRUE(found);
  expect_step(*found, 1);
  EXPECT_THAT(passed_over, ElementsAre(testing::AllOf(testing::HasSubstr("rank-1.bin: belongs to another run than '"),
                                                      testing::HasSubstr(kRun))));
}

}  // namespace
}  // namespace tessera::checkpoint

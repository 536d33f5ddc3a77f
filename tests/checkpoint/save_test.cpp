#include "tessera/checkpoint/save.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "checkpoint/fixture.h"
#include "io/file_size_limit.h"
#include "random/settings.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_io::FileSizeLimit;
using testing_io::put;
using testing_io::TemporaryFolder;

int64_t latest_step(const fs::path& folder) {
  std::vector<std::string> passed_over;
  const auto checkpoint = Checkpoint::latest(folder, passed_over);
  EXPECT_THAT(passed_over, testing::IsEmpty());
  if (!checkpoint) return 0;
  expect_step(*checkpoint, checkpoint->facts().step);
  return checkpoint->facts().step;
}

TEST(save, older_ones_go_when_a_new_one_is_good) {
  TemporaryFolder folder;
  for (int64_t step : {1, 2, 3}) save_step(folder.path(), step, 2);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000002", "step-000003"));
  save_step(folder.path(), 4, 1);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000004"));
  save_step(folder.path(), 5, 0);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000004", "step-000005"));
}

TEST(save, the_new_one_stays_though_others_have_higher_steps) {
  TemporaryFolder folder;
  for (int64_t step : {7, 8, 3}) save_step(folder.path(), step, 2);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000003", "step-000008"));
  save_step(folder.path(), 4, 1);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000004"));
}

TEST(save, tidying_removes_what_a_killed_run_has_left) {
  TemporaryFolder folder;
  for (int64_t step : {1, 2, 3, 5}) save_step(folder.path(), step);  // and killed before older ones went
  for (int64_t step : {3, 6}) save_rank(folder.path(), step, 0, "another");
  put(folder / ".hidden", "mine");
  EXPECT_EQ(tidy(folder.path(), 3, 2), std::nullopt);
  EXPECT_THAT(names_in(folder.path()), ElementsAre(".hidden", "step-000002", "step-000003", "step-000005"));
  EXPECT_EQ(tidy(folder.path(), 3, 0), std::nullopt);
  EXPECT_THAT(names_in(folder.path()), ElementsAre(".hidden", "step-000002", "step-000003", "step-000005"));
}

// Two runs that save the same steps at once, where no lock has kept them apart.
TEST(save, runs_that_share_a_folder_never_share_a_checkpoint) {
  TemporaryFolder folder;
  save_rank(folder.path(), 1, 0, "run a");
  save_rank(folder.path(), 1, 1, "run b");
  for (const std::string run : {"run a", "run b"}) {
    const Outcome outcome = commit(folder.path(), {1, "model", {}, run}, 2, 0);
    EXPECT_FALSE(outcome.saved);
    EXPECT_THAT(outcome.problem, HasSubstr(".json"));
  }
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
  for (const auto& [from, to] : {std::pair("run b", "run a"), std::pair("run a", "run b")}) {
    for (int64_t rank : {0, 1}) save_rank(folder.path(), 2, rank, from);
    save_rank(folder.path(), 2, 0, to);
    // Somebody moves a file to where the other run's is missing.
    for (const std::string& file : {rank_file(1), rank_table(1)})
      fs::copy(partial_folder(folder.path(), 2, from) / file, partial_folder(folder.path(), 2, to) / file);
    const Outcome outcome = commit(folder.path(), {2, "model", {}, to}, 2, 0);
    EXPECT_FALSE(outcome.saved);
    EXPECT_THAT(outcome.problem, HasSubstr(std::string("rank-1.json: belongs to run '") + from + "'"));
    discard(folder.path(), 2, from);
  }
}

TEST(save, files_of_others_stay) {
  TemporaryFolder folder;
  put(folder / "notes.txt", "mine");
  put(folder / ".hidden", "mine");
  fs::create_directory(folder / "step-one");
  save_step(folder.path(), 1, 1);
  save_step(folder.path(), 2, 1);
  EXPECT_THAT(names_in(folder.path()), ElementsAre(".hidden", "notes.txt", "step-000002", "step-one"));
}

TEST(save, the_same_step_is_replaced) {
  TemporaryFolder folder;
  save_step(folder.path(), 1);
  put(folder / "step-000001" / "rank-0.bin", "damaged");
  const Outcome outcome = save_step(folder.path(), 1, 1);
  EXPECT_TRUE(outcome.saved) << outcome.problem;
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000001"));
  EXPECT_EQ(latest_step(folder.path()), 1);
}

TEST(save, what_a_killed_run_of_more_ranks_has_left_is_no_part) {
  TemporaryFolder folder;
  for (int64_t rank : {0, 1}) save_rank(folder.path(), 5, rank);  // and killed before it was committed
  RankFile third(folder.path(), 5, 2, kRun);
  third.add({"more", DType::uint8, {1}}, {{0}, {1}}, "x");
  ASSERT_EQ(third.finish(), std::nullopt);
  save_rank(folder.path(), 4, 0);
  put(folder / ".step-000003.removed", "half removed");
  EXPECT_TRUE(save_step(folder.path(), 5).saved);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000005"));
  EXPECT_THAT(names_in(folder / "step-000005"), ElementsAre("checkpoint.json", "rank-0.bin", "rank-1.bin"));
  EXPECT_EQ(latest_step(folder.path()), 5);
}

TEST(save, a_rank_that_has_not_finished_is_named) {
  TemporaryFolder folder;
  save_rank(folder.path(), 1, 0);
  const Outcome outcome = commit(folder.path(), {1, "model", {}, kRun}, 2, 0);
  EXPECT_FALSE(outcome.saved);
  EXPECT_THAT(outcome.problem, HasSubstr("rank-1.json"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

TEST(save, a_rank_that_begins_anew_is_not_taken_for_finished) {
  TemporaryFolder folder;
  for (int64_t rank : {0, 1}) save_rank(folder.path(), 1, rank);  // and killed before it was committed
  RankFile again(folder.path(), 1, 1, kRun);
  EXPECT_FALSE(commit(folder.path(), {1, "model", {}, kRun}, 2, 0).saved);
}

TEST(save, a_rank_that_fails_leaves_the_others_to_discard) {
  TemporaryFolder folder;
  save_rank(folder.path(), 1, 0);
  {
    FileSizeLimit full(0);
    EXPECT_TRUE(save_rank(folder.path(), 1, 1));
  }
  EXPECT_THAT(names_in(partial_folder(folder.path(), 1, kRun)), ElementsAre("rank-0.bin", "rank-0.json"));
  discard(folder.path(), 1, kRun);
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

TEST(save, pieces_that_do_not_fit_together_are_a_bug) {
  TemporaryFolder folder;
  const std::vector<float> w = w_of(1);
  for (const auto& [begin, extent] : {std::pair(0, 3), std::pair(2, 2)}) {
    {
      RankFile file(folder.path(), 1, 0, kRun);
      file.add(kW, {{0, 0}, {2, 3}}, w.data());
      file.add(kW, {{begin, 0}, {extent, 3}}, w.data());
      if (begin == 2) file.add(kW, {{3, 0}, {1, 3}}, w.data());
      ASSERT_EQ(file.finish(), std::nullopt);
    }
    try {
      commit(folder.path(), {1, "model", {}, kRun}, 1, 0);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::running);
      EXPECT_THAT(error.what(), HasSubstr("'w': its pieces hold some elements twice"));
    }
  }
}

TEST(save, a_full_disk_is_told_and_the_last_good_one_stays) {
  TemporaryFolder folder;
  ASSERT_TRUE(save_step(folder.path(), 1, 1).saved);
  const auto table = fs::file_size(folder / "step-000001" / "checkpoint.json");
  // Full in the header, in the first piece, between two, in the second, in a rank's table, in the manifest.
  for (rlim_t limit : {rlim_t{0}, rlim_t{10}, rlim_t{70}, rlim_t{88}, rlim_t{128}, rlim_t{130}, rlim_t{table - 1}}) {
    Outcome outcome;
    {
      FileSizeLimit full(limit);
      outcome = save_step(folder.path(), 2, 1);
    }
    EXPECT_FALSE(outcome.saved) << limit;
    EXPECT_THAT(outcome.problem, HasSubstr("File too large"));
    EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000001")) << limit;
    EXPECT_EQ(latest_step(folder.path()), 1);
  }
  EXPECT_TRUE(save_step(folder.path(), 2, 1).saved);
  EXPECT_EQ(latest_step(folder.path()), 2);
}

TEST(save, a_folder_that_went_away_is_told) {
  TemporaryFolder folder;
  put(folder / "file", "");
  const auto failure = save_rank(folder / "file", 1, 0);
  ASSERT_TRUE(failure);
  EXPECT_THAT(*failure, HasSubstr("Not a directory"));
}

TEST(save, a_run_begins_with_a_folder_that_it_can_write) {
  TemporaryFolder folder;
  EXPECT_NO_THROW(require_writable(folder / "a/b"));
  EXPECT_TRUE(fs::is_directory(folder / "a/b"));
  put(folder / "file", "");
  expect_user_error([&] { require_writable(folder / "file"); }, {"file"});
  expect_user_error([&] { require_writable(folder / "file/below"); }, {"below"});
}

TEST(save, types_below_a_byte_are_refused) {
  TemporaryFolder folder;
  RankFile file(folder.path(), 1, 0, kRun);
  expect_user_error([&] { file.add({"q", DType::int4, {2}}, {{0}, {2}}, "x"); }, {"'q'", "int4"});
}

// A child that saves step after step is killed at any moment. The parent knows the last step that commit() has
// acknowledged; that one or a later one must be there, whole.
TEST(save, a_kill_at_any_moment_leaves_the_last_good_one) {
  const uint64_t seed = random::number_from("TESSERA_TEST_SEED", random::kFirstSeed);
  SCOPED_TRACE(testing::Message() << "TESSERA_TEST_SEED=" << seed);
  std::mt19937_64 generator(seed);
  TemporaryFolder folder;
  int64_t last = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  int kills = 0;
  for (; std::chrono::steady_clock::now() < end; ++kills) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      for (int64_t step = last + 1;; ++step) {
        if (!save_step(folder.path(), step, 2).saved) _exit(1);
        if (write(ends[1], &step, sizeof step) != sizeof step) _exit(1);
      }
    }
    close(ends[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(generator() % 150'000));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    int64_t acknowledged = last;
    while (read(ends[0], &acknowledged, sizeof acknowledged) == sizeof acknowledged) {
    }
    close(ends[0]);
    last = latest_step(folder.path());
    ASSERT_GE(last, acknowledged);
    ASSERT_LE(last, acknowledged + 1);
  }
  EXPECT_GT(kills, 5);
  EXPECT_GT(last, 0);
  ASSERT_TRUE(save_step(folder.path(), last + 1, 2).saved);
  EXPECT_LE(names_in(folder.path()).size(), 2u);  // no litter of killed processes
}

}  // namespace
}  // namespace tessera::checkpoint

// Ranks that could not be started leave nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "tessera/base/descriptor.h"
#include "tessera/comm/communicator.h"
#include "tessera/launch.h"

namespace tessera {
namespace {

#ifndef TESSERA_THREAD_SANITIZER  // it keeps for itself the addresses where ranks share memory

size_t open_descriptors() {
  using Entries = std::filesystem::directory_iterator;
  return static_cast<size_t>(std::distance(Entries("/proc/self/fd"), Entries()));
}

/// While it lives, this process may have no more of that resource.
class Limit {
 public:
  Limit(__rlimit_resource resource, rlim_t most) : resource_(resource) {
    getrlimit(resource_, &before_);
    const rlimit limited{most, before_.rlim_max};
    EXPECT_EQ(setrlimit(resource_, &limited), 0);
  }
  ~Limit() { setrlimit(resource_, &before_); }

 private:
  __rlimit_resource resource_;
  rlimit before_{};
};

template <typename Call>
std::string error_of(Call call) {
  try {
    call();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(FailedSpawn, leaves_no_descriptor_where_there_is_no_room_to_share) {
  const size_t before = open_descriptors();
  std::string error;
  {
    const Limit limit(RLIMIT_FSIZE, 1 << 20);
    signal(SIGXFSZ, SIG_IGN);
    error = error_of([] { comm::create_shared_memory(2); });
  }
  EXPECT_THAT(error, testing::HasSubstr("no memory for ranks to share"));
  EXPECT_EQ(open_descriptors(), before);
}

/// A program whose ranks do nothing for so long.
std::vector<std::string> asleep(const char* seconds) {
  setenv("TESSERA_TEST_SLEEP", seconds, 1);
  return {"launch_test", "--gtest_filter=SpawnedRank.sleeps"};
}

// Runs as a rank of the tests below; otherwise there is nothing to do.
TEST(SpawnedRank, sleeps) {
  if (getenv("TESSERA_RANK") != nullptr) sleep(static_cast<unsigned>(atoi(getenv("TESSERA_TEST_SLEEP"))));
}

// Each call has ranks of its own: the first to end, well or by a failure, leaves those of the other alone.
TEST(Spawn, may_be_called_from_several_threads_at_once) {
  std::string slow;
  std::vector<std::string> fast(3);
  std::thread first([&, arguments = asleep("3")] {
    slow = error_of([&] { EXPECT_EQ(spawn({.ranks = 2, .arguments = arguments}).code, 0); });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  for (std::string& error : fast)
    error = error_of([] { spawn({.ranks = 2, .arguments = {"launch_test", "--gtest_no_such_option", "--help"}}); });
  EXPECT_THAT(fast, testing::Each(""));
  EXPECT_THAT(error_of([] {
                spawn({.ranks = 2, .arguments = {"launch_test", "--gtest_filter=SpawnedRank.fails"}});
              }),
              testing::HasSubstr("rank 0 died"));
  first.join();
  EXPECT_EQ(slow, "");
}

TEST(SpawnedRank, fails) {
  const char* rank = getenv("TESSERA_RANK");
  if (rank != nullptr && std::string_view(rank) == "0") raise(SIGKILL);
}

#ifndef __SANITIZE_ADDRESS__  // its looks at objects take descriptors, too
TEST(FailedSpawn, leaves_no_descriptor_and_no_rank_where_ranks_cannot_be_watched) {
  const size_t before = open_descriptors();
  std::string error;
  {
    const Limit limit(RLIMIT_NOFILE, 256);
    std::vector<Descriptor> others;
    do others.emplace_back(dup(STDERR_FILENO));
    while (others.back().get() >= 0);
    others.resize(others.size() - 3);  // room for the memory, and for the handle of one rank of two
    error = error_of([] { spawn({.ranks = 2, .arguments = {"launch_test", "--gtest_filter=-*"}}); });
  }
  EXPECT_THAT(error, testing::HasSubstr("a rank cannot be watched"));
  EXPECT_EQ(open_descriptors(), before);
}
#endif

#endif

}  // namespace
}  // namespace tessera

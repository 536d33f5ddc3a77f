#include "tessera/comm/mpi/deaths.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

namespace tessera::comm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Deaths, are_seen_once_and_on_the_own_host_only) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  constexpr int64_t kHost = 7, kOther = 8;
  Deaths deaths(1, std::vector{kHost, kHost, kHost, kOther}, std::vector<int64_t>{getppid(), getpid(), child, child});
  EXPECT_THAT(deaths.look(), IsEmpty());
  kill(child, SIGKILL);
  std::vector<int> seen;
  for (int tries = 0; seen.empty() && tries < 1000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    seen = deaths.look();
  }
  EXPECT_THAT(seen, ElementsAre(2));
  EXPECT_THAT(deaths.look(), IsEmpty());
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace tessera::comm

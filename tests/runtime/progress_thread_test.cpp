#include "tessera/runtime/progress_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace tessera::runtime {
namespace {

// Until the other thread has asked so often.
void wait_for(const std::atomic<int>& asked, int times) {
  while (asked < times) std::this_thread::yield();
}

TEST(ProgressThread, asks_while_it_may_and_never_else) {
  std::atomic<int> asked = 0;
  std::atomic<bool> is_lent = false, is_wrong = false;
  {
    ProgressThread thread([&] {
      is_wrong = is_wrong || !is_lent;
      ++asked;
    });
    for (int turn = 0; turn < 20; ++turn) {
      const int before = asked;
      is_lent = true;
      thread.lend();
      wait_for(asked, before + 1 + turn % 2);
      EXPECT_EQ(thread.take_back(), nullptr);
      is_lent = false;
    }
  }
  EXPECT_FALSE(is_wrong);
}

TEST(ProgressThread, hands_over_what_was_thrown_and_goes_on) {
  std::atomic<int> asked = 0;
  ProgressThread thread([&] {
    if (++asked == 1) throw std::runtime_error("the peer has died");
  });
  thread.lend();
  wait_for(asked, 1);
  EXPECT_THROW(std::rethrow_exception(thread.take_back()), std::runtime_error);
  thread.lend();
  wait_for(asked, 2);
  EXPECT_EQ(thread.take_back(), nullptr);
}

TEST(ProgressThread, need_not_begin) {
  ProgressThread thread([] { FAIL(); });
  EXPECT_EQ(thread.take_back(), nullptr);
}

}  // namespace
}  // namespace tessera::runtime

#include "tessera/kernels/contention.h"

#include <gtest/gtest.h>

namespace tessera::kernels {
namespace {

using std::chrono::milliseconds;

// A process that looks every 4 ms of a time that the test counts, and forgives 20 losses per second.
class Looks {
 public:
  // For `span`, one loss every `between`; 0: none. Returns how long the answer was "shared".
  milliseconds pass(milliseconds span, milliseconds between = milliseconds(0)) {
    milliseconds shared(0);
    for (const Contention::Clock::time_point end = now_ + span; now_ < end; now_ += kStep) {
      if (between.count() > 0 && now_.time_since_epoch() % between < kStep) ++losses_;
      if (contention_.look(now_, losses_)) shared += kStep;
    }
    return shared;
  }
  void sleep(milliseconds span) { now_ += span; }
  void lose(int64_t count) { losses_ += count; }
  bool is_shared() const { return contention_.is_shared(); }

 private:
  static constexpr milliseconds kStep{4};
  Contention contention_{20};
  Contention::Clock::time_point now_{std::chrono::hours(1)};
  int64_t losses_ = 1000;
};

constexpr milliseconds kHog{8};  // between losses beside one busy process

TEST(Contention, AMachineOfItsOwnIsNotShared) {
  Looks looks;
  EXPECT_EQ(looks.pass(milliseconds(10'000)), milliseconds(0));
}

TEST(Contention, TheKernelsOwnThreadsAreForgiven) {
  Looks looks;
  EXPECT_EQ(looks.pass(milliseconds(10'000), milliseconds(60)), milliseconds(0));
}

TEST(Contention, AFewLossesAtOnceAreForgiven) {
  Looks looks;
  for (int second = 0; second < 10; ++second) {
    looks.lose(2);
    EXPECT_EQ(looks.pass(milliseconds(1000)), milliseconds(0));
  }
}

TEST(Contention, ABusyProcessIsNoticedWithinAFewOfItsTurns) {
  Looks looks;
  looks.pass(milliseconds(1000));
  EXPECT_GE(looks.pass(milliseconds(1000), kHog), milliseconds(950));
}

TEST(Contention, LossesBeforeTheFirstLookDoNotCount) {
  Looks looks;
  looks.lose(1000);
  EXPECT_EQ(looks.pass(milliseconds(1000)), milliseconds(0));
}

TEST(Contention, WhatWasLostDuringALongPauseDoesNotCount) {
  Looks looks;
  looks.pass(milliseconds(100));
  looks.sleep(milliseconds(60'000));
  looks.lose(100);  // other sessions' threads, in a minute
  EXPECT_EQ(looks.pass(milliseconds(1000)), milliseconds(0));
}

TEST(Contention, AFreeMachineIsNoticed) {
  Looks looks;
  looks.pass(milliseconds(5000), kHog);
  ASSERT_TRUE(looks.is_shared());
  looks.pass(milliseconds(600));
  EXPECT_FALSE(looks.is_shared());
}

// Teams that sleep lose no cores. Each return to spinning loses some, so that returns become rare.
TEST(Contention, TrialsBecomeRareWhileTheyFail) {
  Looks looks;
  const auto ten_seconds = [&] {
    milliseconds spinning(0);
    for (milliseconds passed(0); passed < milliseconds(10'000); passed += milliseconds(4)) {
      const bool shared = looks.is_shared();
      looks.pass(milliseconds(4), shared ? milliseconds(0) : kHog);
      if (!shared) spinning += milliseconds(4);
    }
    return spinning;
  };
  ten_seconds();
  EXPECT_LE(ten_seconds(), milliseconds(150));  // of 10,000
}

}  // namespace
}  // namespace tessera::kernels

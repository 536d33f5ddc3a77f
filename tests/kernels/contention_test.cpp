#include "tessera/kernels/contention.h"

#include <gtest/gtest.h>

namespace tessera::kernels {
namespace {

using std::chrono::milliseconds;

// A process whose threads get `share` of a core, and which looks every 4 ms of a time that the test counts.
class Looks {
 public:
  explicit Looks(double share = 1) : share_(share) {}

  // For `span`, a wait for one turn every `between` of the time on cores; 0: none. Returns how long the answer was
  // "shared".
  milliseconds pass(milliseconds span, milliseconds between = milliseconds(0)) {
    milliseconds shared(0);
    for (const Contention::Clock::time_point end = now_ + span; now_ < end; now_ += kStep) {
      const auto before = had_.cores;
      had_.cores += std::chrono::duration_cast<std::chrono::microseconds>(kStep * share_);
      if (between.count() > 0) lose(had_.cores / between - before / between);
      if (contention_.look(now_, had_)) shared += kStep;
    }
    return shared;
  }
  void sleep(milliseconds span) { now_ += span; }
  void lose(int64_t turns) { had_.waited += turns * milliseconds(4); }
  bool is_shared() const { return contention_.is_shared(); }
  int threads_per_core() const { return contention_.threads_per_core(); }

 private:
  static constexpr milliseconds kStep{4};
  double share_;
  Contention contention_;
  Contention::Clock::time_point now_{std::chrono::hours(1)};
  Contention::Had had_;
};

constexpr milliseconds kHog{4};  // between turns beside one busy process on each core

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

// Where many others have most of the time, losses are rare in the time of clocks.
TEST(Contention, ACrowdIsNoticedInTheTimeThatTheProcessHas) {
  Looks looks(0.03);
  EXPECT_GE(looks.pass(milliseconds(10'000), milliseconds(3)), milliseconds(9000));
}

TEST(Contention, LossesBeforeTheFirstLookCount) {
  Looks looks;
  looks.lose(100);
  EXPECT_GE(looks.pass(milliseconds(200)), milliseconds(200));
}

TEST(Contention, MoreLossesThanAPatienceForgivesAreForgottenInTime) {
  Looks looks;
  looks.lose(100'000);
  looks.sleep(milliseconds(60'000));
  EXPECT_LE(looks.pass(milliseconds(10'000)), milliseconds(600));
}

TEST(Contention, AFreeMachineIsNoticed) {
  Looks looks;
  looks.pass(milliseconds(30'000), kHog);
  looks.pass(milliseconds(4100));
  EXPECT_FALSE(looks.is_shared());
  EXPECT_EQ(looks.pass(milliseconds(10'000)), milliseconds(0));
}

// Two threads of one process that share a core wait for each other, whoever else there is.
TEST(Contention, ThreadsThatShareACoreDoNotKeepSharingIt) {
  Looks looks;
  looks.pass(milliseconds(1000), kHog);
  for (int passed = 0; passed < 5000; passed += 4) looks.pass(milliseconds(4), milliseconds(looks.is_shared() ? 4 : 0));
  EXPECT_FALSE(looks.is_shared());
}

TEST(Contention, ThreadsShareCoresByWhatTheyGetOfThem) {
  const auto per_core = [](milliseconds between) {
    Looks looks;
    looks.pass(milliseconds(100), between);
    return looks.threads_per_core();
  };
  EXPECT_EQ(Looks().threads_per_core(), 0);
  EXPECT_EQ(per_core(milliseconds(4)), 2);   // half of each core
  EXPECT_EQ(per_core(milliseconds(8)), 2);   // one busy process beside two threads
  EXPECT_EQ(per_core(milliseconds(1)), 5);   // four busy processes on each core
}

// Each trial has threads wait, so that trials become rare.
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

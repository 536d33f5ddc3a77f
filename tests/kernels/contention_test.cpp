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
      const auto before = used_.cores;
      used_.cores += std::chrono::duration_cast<std::chrono::microseconds>(kStep * share_);
      if (between.count() > 0) wait_for(used_.cores / between - before / between);
      if (contention_.look(now_, used_)) shared += kStep;
    }
    return shared;
  }
  void sleep(milliseconds span) { now_ += span; }
  void wait_for(int64_t turns) { used_.waited += turns * milliseconds(4); }
  bool is_shared() const { return contention_.is_shared(); }
  int cores_for(int threads) const { return contention_.cores_for(threads); }

 private:
  static constexpr milliseconds kStep{4};
  double share_;
  Contention contention_;
  Contention::Clock::time_point now_{std::chrono::hours(1)};
  Contention::Usage used_;
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

TEST(Contention, AFewTurnsAtOnceAreForgiven) {
  Looks looks;
  for (int second = 0; second < 10; ++second) {
    looks.wait_for(2);
    EXPECT_EQ(looks.pass(milliseconds(1000)), milliseconds(0));
  }
}

TEST(Contention, ABusyProcessIsNoticedWithinAFewOfItsTurns) {
  Looks looks;
  looks.pass(milliseconds(1000));
  EXPECT_GE(looks.pass(milliseconds(1000), kHog), milliseconds(950));
}

// Where many others have most of the time, turns are rare in the time of clocks.
TEST(Contention, ACrowdIsNoticedInTheTimeThatTheProcessHas) {
  Looks looks(0.03);
  EXPECT_GE(looks.pass(milliseconds(10'000), milliseconds(3)), milliseconds(9000));
}

TEST(Contention, TurnsBeforeTheFirstLookCount) {
  Looks looks;
  looks.wait_for(100);
  EXPECT_GE(looks.pass(milliseconds(200)), milliseconds(200));
}

TEST(Contention, MoreTurnsThanAPatienceForgivesAreForgottenInTime) {
  Looks looks;
  looks.wait_for(100'000);
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

TEST(Contention, TeamsUseTheCoresThatTheyGet) {
  const auto cores = [](milliseconds between, int threads) {
    Looks looks;
    looks.pass(milliseconds(400), between);
    return looks.cores_for(threads);
  };
  EXPECT_EQ(Looks().cores_for(8), 8);
  EXPECT_EQ(cores(milliseconds(4), 1), 1);  // half of each core
  EXPECT_EQ(cores(milliseconds(4), 2), 1);
  EXPECT_EQ(cores(milliseconds(4), 8), 4);
  EXPECT_EQ(cores(milliseconds(8), 2), 1);  // two thirds
  EXPECT_EQ(cores(milliseconds(8), 8), 5);
  EXPECT_EQ(cores(milliseconds(1), 2), 1);  // a fifth
}

// Threads that have ended take what they waited with them.
TEST(Contention, WaitingThatIsForgottenIsNoCredit) {
  Looks looks;
  looks.pass(milliseconds(100));
  looks.wait_for(-100);
  EXPECT_GE(looks.pass(milliseconds(400), kHog), milliseconds(370));
  EXPECT_EQ(looks.cores_for(2), 1);
}

// Each trial has threads wait, so that trials become rare.
class ContentionOfTeams : public testing::TestWithParam<int> {};

TEST_P(ContentionOfTeams, TrialsBecomeRareWhileTheyFail) {
  Looks looks(GetParam());
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

INSTANTIATE_TEST_SUITE_P(Threads, ContentionOfTeams, testing::Values(1, 2, 16));

}  // namespace
}  // namespace tessera::kernels

#include "tessera/goodput.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "error_of.h"

namespace tessera {
namespace {

using testing::HasSubstr;

// Plays a run, failure by failure: where its seconds went.
struct Played {
  double work = 0, checkpoints = 0, lost = 0, restarts = 0;
  int64_t failures = 0;
  double total() const { return work + checkpoints + lost + restarts; }
};

class Player {
 public:
  Player(const FailureModel& failures, uint64_t seed) : failures_(failures), random_(seed) { draw(); }

  Played play(double step, int64_t every, int64_t steps) {
    Played played;
    for (int64_t done = 0; done < steps;) {
      const double work = step * static_cast<double>(std::min(every, steps - done));
      while (!survives(work + failures_.checkpoint, played.lost, played)) {
        while (!survives(failures_.restart, played.restarts, played)) {
        }
        played.restarts += failures_.restart;
      }
      played.work += work;
      played.checkpoints += failures_.checkpoint;
      done += std::min(every, steps - done);
    }
    return played;
  }

 private:
  // By inversion, since std::exponential_distribution differs between libraries.
  void draw() { left_ = -failures_.mtbf * std::log1p(-std::ldexp(static_cast<double>(random_() >> 11), -53)); }

  // Whether no failure comes within so many seconds; else adds those before it to `spent`.
  bool survives(double seconds, double& spent, Played& played) {
    if (left_ > seconds) {
      left_ -= seconds;
      return true;
    }
    spent += left_;
    ++played.failures;
    draw();
    return false;
  }

  FailureModel failures_;
  std::mt19937_64 random_;
  double left_ = 0;  // seconds until the next failure
};

TEST(Goodput, AgreesWithARunThatIsPlayed) {
  struct Case {
    FailureModel failures;
    double step;
    int64_t every;
  };
  // Rare failures; failures within most checkpoints, steps and restarts; checkpoints that cost nothing.
  const std::vector<Case> cases = {{{3600, 300, 30}, 20, 25},
                                   {{100, 50, 30}, 7, 5},
                                   {{1000, 10, 200}, 100, 1},
                                   {{500, 0, 1}, 3, 40},
                                   {{500, 400, 0}, 3, 1}};
  constexpr uint64_t kSeed = 20241;
  for (const Case& each : cases) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", mtbf " << each.failures.mtbf);
    // Many failures and many checkpoints, and a rest of less than `every` steps.
    const double segment = each.step * static_cast<double>(each.every) + each.failures.checkpoint;
    const double segments = 40000 * std::max(1.0, each.failures.mtbf / segment);
    const int64_t steps = static_cast<int64_t>(segments) * each.every + each.every / 2;
    const Played played = Player(each.failures, kSeed).play(each.step, each.every, steps);
    const double total = played.total();
    const Goodput predicted = goodput(each.failures, each.step, each.every);
    EXPECT_NEAR(played.work / total, predicted.share, 0.01);
    EXPECT_NEAR(played.checkpoints / total, predicted.checkpoint_share, 0.01);
    EXPECT_NEAR(played.lost / total, predicted.lost_share, 0.01);
    EXPECT_NEAR(played.restarts / total, predicted.restart_share, 0.01);
    EXPECT_NEAR(total / expected_seconds(each.failures, each.step, each.every, steps), 1, 0.02);
    EXPECT_NEAR(static_cast<double>(played.failures) * each.failures.mtbf / total, 1, 0.03);
  }
}

TEST(Goodput, SharesAddUp) {
  for (const double mtbf : {50.0, 1e3, 1e6, 1e12}) {
    const Goodput found = goodput({mtbf, 60, 5}, 3, 10);
    EXPECT_NEAR(found.share + found.checkpoint_share + found.lost_share + found.restart_share, 1, 1e-9) << mtbf;
  }
  // Without failures only checkpoints cost time.
  EXPECT_NEAR(goodput({1e15, 60, 5}, 3, 10).share, 30.0 / 35, 1e-9);
  EXPECT_NEAR(expected_seconds({1e15, 60, 5}, 3, 10, 25), 25 * 3 + 3 * 5, 1e-6);
}

TEST(Goodput, TheBestIntervalIsYoungsWhereCheckpointsAreCheap) {
  for (const double cost : {1e-3, 1e-2, 1.0}) {
    const FailureModel failures{1e6, 100, cost};
    EXPECT_NEAR(best_checkpoint_interval(failures) / std::sqrt(2 * cost * failures.mtbf), 1, 1e-3);
  }
}

// Daly's equation 37, for checkpoints of up to two mean times between failures.
TEST(Goodput, TheBestIntervalIsDalys) {
  for (const double share : {1e-4, 1e-2, 0.1}) {
    const FailureModel failures{1000, 100, 1000 * share};
    const double ratio = share / 2, cost = failures.checkpoint;
    const double daly = std::sqrt(2 * cost * failures.mtbf) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - cost;
    EXPECT_NEAR(best_checkpoint_interval(failures) / daly, 1, 2e-3) << share;
  }
}

TEST(Goodput, NoOtherNumberOfStepsIsBetter) {
  for (const FailureModel& failures :
       {FailureModel{3600, 300, 30}, FailureModel{100, 10, 90}, FailureModel{1000, 0, 0}, FailureModel{1e4, 5, 1}}) {
    const int64_t best = best_checkpoint_steps(failures, 7);
    const double share = goodput(failures, 7, best).share;
    for (int64_t every = 1; every <= 2 * best + 3; ++every)
      EXPECT_LE(goodput(failures, 7, every).share, share + 1e-12) << every;
  }
}

// Llama 3 405B: 16,384 devices, 54 days, 419 interruptions that were not planned, and more than 90 % of effective
// training time ("The Llama 3 Herd of Models", arXiv 2407.21783, section 3.3.4).
TEST(Goodput, ExplainsThatOfLlama3) {
  constexpr double kDay = 86400, kDays = 54, kDevices = 16384, kInterruptions = 419;
  const double of_device = kDays * kDay * kDevices / kInterruptions;
  EXPECT_NEAR(of_device / 3600, 50.7e3, 100);  // hours
  const FailureModel failures{of_device / kDevices, 300, 30};
  EXPECT_NEAR(failures.mtbf / 3600, 3.09, 0.01);
  const int64_t every = best_checkpoint_steps(failures, 5);
  const Goodput found = goodput(failures, 5, every);
  EXPECT_GT(found.share, 0.9);
  // Restarts of half an hour would not have allowed that.
  EXPECT_LT(goodput({failures.mtbf, 1800, 30}, 5, every).share, 0.9);
}

TEST(Goodput, NamesInvalidNumbers) {
  EXPECT_THAT(test::error_of([] { goodput({0, 1, 1}, 1, 1); }), HasSubstr("mean time between failures is 0 seconds"));
  EXPECT_THAT(test::error_of([] { goodput({1, -1, 1}, 1, 1); }), HasSubstr("restart is -1 seconds"));
  EXPECT_THAT(test::error_of([] { goodput({1, 1, 1}, 1, 0); }), HasSubstr("at least 1"));
  EXPECT_THAT(test::error_of([] { goodput({1, 1, 1}, 1000, 1); }), HasSubstr("makes no progress"));
  EXPECT_THAT(test::error_of([] { best_checkpoint_interval({NAN, 1, 1}); }), HasSubstr("nan seconds"));
}

}  // namespace
}  // namespace tessera

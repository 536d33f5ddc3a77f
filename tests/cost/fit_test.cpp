#include "tessera/cost/fit.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera::cost {
namespace {

TEST(Fit, finds_what_made_the_times) {
  std::vector<Timed> measurements;
  for (double bytes : {1e3, 1e5, 1e7}) {
    const Terms terms = ring(Collective::all_reduce, 4, bytes);
    measurements.push_back({terms, terms.messages * 2e-6 + terms.bytes * 3e-10});
  }
  const Fit found = fit(measurements);
  EXPECT_NEAR(found.alpha, 2e-6, 1e-12);
  EXPECT_NEAR(found.beta, 3e-10, 1e-16);
  EXPECT_NEAR(found.error, 0, 1e-6);
}

// Small and large messages off by the same share, in opposite directions, pull equally.
TEST(Fit, counts_errors_by_their_share) {
  const Fit found = fit(std::vector<Timed>{{{1, 0}, 1}, {{1, 0}, 3}, {{0, 1}, 1000}, {{0, 1}, 3000}});
  EXPECT_NEAR(found.alpha, 1.2, 1e-9) << "(1/1 + 1/3) / (1/1 + 1/9)";
  EXPECT_NEAR(found.beta, 1200, 1e-6);
  EXPECT_GT(found.error, 0.3);
}

TEST(Fit, is_never_negative) {
  const Fit found = fit(std::vector<Timed>{{{1, 1}, 2}, {{1, 100}, 1}});
  EXPECT_GT(found.alpha, 0);
  EXPECT_EQ(found.beta, 0) << "times that fall with the bytes are latency";
}

TEST(Fit, takes_collectives_in_their_better_form) {
  const Level level{8, 3e-6, 2e-10};
  std::vector<TimedCollective> measurements;
  for (double bytes = 1024; bytes < 1e9; bytes *= 4)
    for (Collective kind : {Collective::all_reduce, Collective::all_gather, Collective::broadcast})
      measurements.push_back({kind, bytes, time_on(kind, level, bytes)});
  const Fit found = fit(8, measurements);
  EXPECT_NEAR(found.alpha, 3e-6, 1e-9);
  EXPECT_NEAR(found.beta, 2e-10, 1e-13);
  EXPECT_LT(found.error, 1e-3);
}

TEST(Fit, of_nothing_is_nothing) {
  EXPECT_EQ(fit({}).alpha, 0);
  EXPECT_EQ(fit(std::vector<Timed>{{{1, 1}, 0}}).beta, 0);
}

}  // namespace
}  // namespace tessera::cost

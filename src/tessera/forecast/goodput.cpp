#include "tessera/goodput.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/error.h"

namespace tessera {
inline namespace v1 {
namespace {

// A run consists of segments: `every` steps and a checkpoint, L seconds, which a failure makes begin anew. With mean
// time M between failures, an attempt succeeds with probability exp(-L/M), so there are exp(L/M) - 1 failed ones before
// it. Every attempt costs M (1 - exp(-L/M)) seconds in the mean, so all attempts M (exp(L/M) - 1). A restart of R
// seconds which failures interrupt is the same problem: M (exp(R/M) - 1). Together: M exp(R/M) (exp(L/M) - 1), Daly's
// equation for the total wall time.
struct Segment {
  double total = 0;      ///< expected seconds
  double restarts = 0;   ///< of these, in restarts
  double attempted = 0;  ///< of these, in attempts, the last one included
};

void require(const FailureModel& failures, double step, int64_t every) {
  const auto number = [](const char* what, double value, bool may_be_zero) {
    if (!std::isfinite(value) || (may_be_zero ? value < 0 : value <= 0))
      fail("goodput", "{} is {} seconds; it must be a finite number {} 0", what, value,
           may_be_zero ? "of at least" : "above");
  };
  number("the mean time between failures", failures.mtbf, false);
  number("the cost of a restart", failures.restart, true);
  number("the cost of a checkpoint", failures.checkpoint, true);
  number("a step", step, false);
  if (every < 1) fail("goodput", "there are {} steps between checkpoints; there must be at least 1", every);
}

Segment segment_of(const FailureModel& failures, double work) {
  const double length = work + failures.checkpoint, mtbf = failures.mtbf;
  const double failed = std::expm1(length / mtbf);
  Segment segment;
  segment.attempted = mtbf * failed;
  segment.restarts = failed * mtbf * std::expm1(failures.restart / mtbf);
  segment.total = segment.attempted + segment.restarts;
  if (!std::isfinite(segment.total))
    fail("goodput",
         "a failure comes every {:.3g} s, but {:.3g} s of steps, a checkpoint of {:.3g} s and a restart of {:.3g} s "
         "must "
         "go without one, so that such a run makes no progress; save checkpoints more often, or make them and restarts "
         "cheaper",
         mtbf, work, failures.checkpoint, failures.restart);
  return segment;
}

}  // namespace

Goodput goodput(const FailureModel& failures, double step, int64_t every) {
  require(failures, step, every);
  const double work = step * static_cast<double>(every);
  const Segment segment = segment_of(failures, work);
  return {.share = work / segment.total,
          .checkpoint_share = failures.checkpoint / segment.total,
          .lost_share = std::max(0.0, segment.attempted - work - failures.checkpoint) / segment.total,
          .restart_share = segment.restarts / segment.total};
}

double best_checkpoint_interval(const FailureModel& failures) {
  require(failures, 1, 1);
  // The root of 1 - x - exp(-x - c), which falls from x = 0 to x = 1, by bisection.
  const double c = failures.checkpoint / failures.mtbf;
  double low = 0, high = 1;
  while (true) {
    const double middle = (low + high) / 2;
    if (middle <= low || middle >= high) return high * failures.mtbf;
    (-middle - std::expm1(-middle - c) > 0 ? low : high) = middle;
  }
}

int64_t best_checkpoint_steps(const FailureModel& failures, double step) {
  require(failures, step, 1);
  // The goodput rises up to the best interval and falls after it.
  constexpr double kMost = 1e15;
  const double steps = std::min(std::floor(best_checkpoint_interval(failures) / step), kMost);
  if (steps < 1) return 1;
  const auto below = static_cast<int64_t>(steps);
  return goodput(failures, step, below).share >= goodput(failures, step, below + 1).share ? below : below + 1;
}

double expected_seconds(const FailureModel& failures, double step, int64_t every, int64_t steps) {
  require(failures, step, every);
  if (steps < 0) fail("goodput", "a run of {} steps; it must have at least 0", steps);
  const int64_t rest = steps % every;
  double seconds = 0;
  if (steps >= every)
    seconds += static_cast<double>(steps / every) * segment_of(failures, step * static_cast<double>(every)).total;
  if (rest > 0) seconds += segment_of(failures, step * static_cast<double>(rest)).total;
  return seconds;
}

}  // namespace v1
}  // namespace tessera

#pragma once

#include <cstdint>

/// What failures cost a long training run (docs/time.md). A failure anywhere stops all ranks. The run then restarts
/// from its last checkpoint and repeats the steps since. Failures come independently of each other, also during
/// checkpoints and restarts: the times between them are distributed exponentially.
namespace tessera {
inline namespace v1 {

/// All in seconds.
struct FailureModel {
  double mtbf = 0;     ///< mean time between failures of the whole run; of D devices: that of one device, divided by D
  double restart = 0;  ///< from a failure until steps go on: to notice it, replace what failed, load a checkpoint
  double checkpoint = 0;  ///< for which saving a checkpoint stops the steps
};

/// Where the time of an endless run goes; the shares' sum is 1.
struct Goodput {
  double share = 0;             ///< in steps that count: the goodput
  double checkpoint_share = 0;  ///< in saving checkpoints from which the run goes on
  double lost_share = 0;        ///< in work since the last checkpoint that failures undo
  double restart_share = 0;     ///< in restarts
};

/// The goodput of a run that saves a checkpoint after each `every` steps of `step` seconds. Throws a user error (stage
/// "goodput") unless all numbers are finite, mtbf and step above 0, the costs at least 0, and `every` at least 1; and
/// if failures come so often that a run practically never reaches its next checkpoint.
Goodput goodput(const FailureModel& failures, double step, int64_t every);

/// The seconds of work between two checkpoints that make the goodput largest: the exact solution t of
/// (1 - t/M) exp((t + C)/M) = 1, where M is mtbf and C checkpoint (Daly, "A higher order estimate of the
/// optimum checkpoint interval for restart dumps", 2006). Young's sqrt(2CM) (1974) is its limit for C much less than M.
/// Throws as goodput().
double best_checkpoint_interval(const FailureModel& failures);

/// The number of steps between two checkpoints that makes the goodput largest. Throws as goodput().
int64_t best_checkpoint_steps(const FailureModel& failures, double step);

/// The expected seconds until `steps` steps are done and the last one is saved. Throws as goodput().
double expected_seconds(const FailureModel& failures, double step, int64_t every, int64_t steps);

}  // namespace v1
}  // namespace tessera

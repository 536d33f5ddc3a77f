#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cost/kernels.h"

namespace tessera::forecast {

/// Seconds of each step in one round of a program's kernels. None: the step has no kernel, or one that did not run.
using RoundTimes = std::vector<std::optional<double>>;

/// Kernels' times, from series of rounds. Other work on the machine only slows kernels down, in some rounds or in whole
/// series, so a kernel is measured in further series until its two fastest agree.
///
/// A kernel's time in a series is its mean over all steps in the half of the rounds whose totals are nearest to the
/// median. One series is enough if both halves of it agree, if the mean agrees with the steps' medians, if half of the
/// times are close to each other, and if the kernel is not far slower than others of its operator for their FLOPs and
/// bytes. Kernels that hardly count in the round need no second series.
class KernelEstimates {
 public:
  using Kernels = std::map<std::string, MachineModel::Kernel>;

  /// `works`: of the steps; without a signature: not to be measured. `known`: from earlier measurements under the same
  /// conditions and others; those marked uncertain count as a series.
  KernelEstimates(std::vector<cost::KernelWork> works, const Kernels& known);

  /// Whether a kernel is not known, or uncertain.
  static bool is_wanted(const cost::KernelWork& work, const Kernels& known);

  /// At least one round.
  void add_series(const std::vector<RoundTimes>& rounds);
  /// Whether another series may change what is found.
  bool is_settled() const;
  /// The kernels that were wanted and have run, by signature. Those whose series do not agree are marked uncertain.
  Kernels found() const;

 private:
  struct Estimate {
    cost::KernelWork work;
    std::vector<double> series;  // seconds, ascending
    double scatter = 0;          // of the fastest series
    double share = 0;            // of the latest round
    bool steady = true;          // within the latest series
  };

  bool is_settled(const Estimate& estimate) const;
  bool is_slow_for_its_kind(const Estimate& estimate) const;

  std::vector<cost::KernelWork> works_;  // by step
  std::map<std::string, Estimate> estimates_;
  std::map<std::string, std::map<std::string, double>> paces_;  // by operator: those of known kernels, by signature
};

}  // namespace tessera::forecast

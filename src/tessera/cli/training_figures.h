#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/cli/console.h"
#include "tessera/cli/latency.h"
#include "tessera/trainer.h"

/// What a training run prints about its steps and its plan.
namespace tessera::cli {

/// The FLOPs of which matrix products are capable in the time of a step, on all machines, and those of a step.
class Speed {
 public:
  Speed() = default;
  /// Measures for about a second, on each machine once; every rank calls it.
  static Speed measured(const Console& console, const Program& program, DType dtype);
  /// The share of the peak that a step takes, from 0 to 1; 0: nothing was measured.
  double utilization(double seconds) const { return peak_ > 0 && seconds > 0 ? flops_ / seconds / peak_ : 0; }

 private:
  double flops_ = 0, peak_ = 0;
};

/// Prints steps as lines. On a terminal, one line on standard error changes with each step. Otherwise there is a line
/// on standard output for each of the first steps, then one every ten seconds, and one for the last step.
class StepLines {
 public:
  StepLines(const Console& console, int64_t first, int64_t steps, int64_t peak_bytes);
  ~StepLines() { clear(); }
  StepLines(const StepLines&) = delete;
  StepLines& operator=(const StepLines&) = delete;

  /// `utilization`: Speed's.
  void show(const StepFigures& figures, double utilization);
  /// Before anything else is printed.
  void clear();

 private:
  std::string line_of(const StepFigures& figures, double utilization) const;

  const Console& console_;
  int64_t first_, steps_, peak_bytes_;
  bool is_live_, logs_;
  bool is_shown_ = false;
  double usual_seconds_ = 0;                         // of a step
  std::optional<Clock::time_point> logged_, shown_;  // when the last lines were
};

/// Bytes of the rank that needs most, by what they hold.
struct MemoryClasses {
  int64_t process_ranks = 1;   ///< that share a process
  int64_t process_peak = 0;    ///< of all ranks of the process that needs most
  std::vector<int64_t> peaks;  ///< of all ranks; of a largest one only, for a plan
  int64_t peak = 0, parameters = 0, optimizer = 0, other_states = 0, activations = 0, gradients = 0, checkpoints = 0,
          evaluation = 0, buffers = 0;

  /// `steps`: the peaks of the step, of ranks from `first` on; an evaluation needs so many bytes beside it.
  /// `process_bytes`: of all ranks of the process that needs most, the evaluation included.
  MemoryClasses(const TrainingStep& step, const Program& program, const std::vector<int64_t>& steps,
                int64_t evaluation_bytes, int64_t ranks_of_process, int64_t process_bytes, int64_t first = 0);
};

/// "mesh dp=2 (2 ranks), 1 thread each; 12 parameters train; at its peak …"
std::string memory_line(const TrainingStep& step, const Program& program, const MemoryClasses& memory,
                        std::optional<int> threads);
/// Parameters, memory and communication.
Json plan_json(const std::string& model, const TrainingStep& step, const Program& program, const MemoryClasses& memory);

}  // namespace tessera::cli

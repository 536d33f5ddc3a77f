#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cli/console.h"
#include "tessera/cli/latency.h"
#include "tessera/cli/train_options.h"
#include "tessera/io/event_file.h"
#include "tessera/training.h"

/// What a training run shows of its steps: on the terminal, in files, and at the end.
namespace tessera::cli {

/// What one step has shown.
struct StepFigures {
  int64_t step = 0;  ///< steps made, this one included
  double loss = 0, norm = 0, rate = 0, seconds = 0;
  double tokens_per_second = 0, utilization = 0;
  std::vector<std::pair<std::string, double>> terms;  ///< of a loss that has several, before they are weighted
  std::optional<double> loss_scale;                   ///< in the step, if it is dynamic
  bool skipped = false;                               ///< gradients were not finite, and no parameter has changed
};

/// What matrix products could do in the time of a step, on all machines together, and what a step does.
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

/// Files that take each step's figures: --metrics and --tensorboard. Written by rank 0 only.
class FigureFiles {
 public:
  /// `first`: the steps that were made before. A run that resumes removes the lines of later steps from the metrics,
  /// and makes TensorBoard drop later events and the evaluation at `first`. Throws user errors for paths that cannot be
  /// written.
  FigureFiles(const Console& console, const TrainOptions& options, int64_t first);
  ~FigureFiles();
  FigureFiles(const FigureFiles&) = delete;
  FigureFiles& operator=(const FigureFiles&) = delete;

  void add(const StepFigures& figures, int64_t peak_bytes);
  void add_evaluation(int64_t step, double loss);

 private:
  void warn_once(bool good, const char* what);

  const Console& console_;
  std::FILE* metrics_ = nullptr;
  std::optional<EventFile> events_;
  bool warned_ = false;
};

/// The steps as lines: on standard error, one that changes, if that is a terminal; on standard output, if either is
/// none, one for each of the first steps, then one in ten seconds. The last step always has its line.
class StepLines {
 public:
  StepLines(const Console& console, int64_t first, int64_t steps, int64_t peak_bytes);
  ~StepLines() { clear(); }
  StepLines(const StepLines&) = delete;
  StepLines& operator=(const StepLines&) = delete;

  void show(const StepFigures& figures);
  /// Before anything else is printed.
  void clear();

 private:
  std::string line_of(const StepFigures& figures) const;

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

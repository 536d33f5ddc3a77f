#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/cli/console.h"
#include "tessera/cli/overlap_report.h"
#include "tessera/cli/trace.h"
#include "tessera/cli/train_options.h"
#include "tessera/cli/training_figures.h"
#include "tessera/trainer.h"

namespace tessera::cli {

/// A trace of a few early steps, for --profile and --details.
class ProfiledSteps {
 public:
  /// `path`: of a file to write; empty: none. Nothing is traced then unless `kept`.
  ProfiledSteps(std::string path, bool kept) : path_(std::move(path)), kept_(kept) {}

  /// See Trace.
  void record(const std::string& program, const Json& command) { trace_.record(program, command); }
  /// After each step; every rank calls it.
  void add(const Console& console, const Session& session, bool is_last);
  const Trace& trace() const { return trace_; }
  const OverlapRows& overlap() const { return overlap_; }

 private:
  std::string path_;
  bool kept_;
  Trace trace_{"measured"};
  OverlapRows overlap_;
  double at_ = 0;
  int seen_ = 0;
  bool done_ = false;
};

/// What a training run shows: on the terminal, in files, and in the answer. All ranks make the same calls.
class TrainingReport : public TrainingObserver {
 public:
  /// `traced`: trace() is needed even if no file is.
  TrainingReport(const Console& console, const TrainOptions& options, bool traced)
      : console_(console), options_(options), profiled_(options.profile, traced) {}

  /// Opens the files. Called before the first step, and after resume(). Both outlive the report.
  void begin(Trainer& trainer, const MemoryClasses& memory, int64_t steps);
  /// For --profile; see Trace.
  void record(const std::string& program, const Json& command) { profiled_.record(program, command); }
  /// Adds the figures of the run to an answer.
  void add_to(Json& object) const;
  /// Of the steps that are profiled.
  const Trace& trace() const { return profiled_.trace(); }
  /// What those steps communicate, as measured.
  const OverlapRows& overlap() const { return profiled_.overlap(); }
  /// Of a step; 0: there were none.
  double median_seconds() const;

  void on_step(const StepFigures& figures) override;
  void after_step(int64_t step, bool ends) override;
  void on_evaluation(int64_t step, double loss) override;
  void on_warning(const std::string& what) override;
  std::shared_ptr<void> on_phase(const std::string& what) override;

 private:
  void warn_of_files();

  const Console& console_;
  const TrainOptions& options_;
  Trainer* trainer_ = nullptr;
  const MemoryClasses* memory_ = nullptr;
  Speed speed_;
  ProfiledSteps profiled_;
  std::optional<TrainingLog> files_;  // of rank 0
  std::unique_ptr<StepLines> lines_;
  std::vector<StepFigures> all_;
  std::vector<std::pair<int64_t, double>> evaluations_;
};

}  // namespace tessera::cli

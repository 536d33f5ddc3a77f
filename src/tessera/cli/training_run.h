#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/cli/console.h"
#include "tessera/cli/train_options.h"
#include "tessera/cli/training_data.h"
#include "tessera/cli/training_figures.h"
#include "tessera/training.h"

namespace tessera::cli {

/// While it lives, SIGTERM and SIGUSR1 ask for an end after the step instead of ending the process; in a process that
/// has started ranks, they ask these. (Launchers that kill soon after a SIGTERM pass SIGUSR1 on and do no more.)
class StopSignal {
 public:
  enum class Of { this_process, spawned_ranks };
  explicit StopSignal(Of whom);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  bool asked() const { return asked_; }

 private:
  std::atomic<bool> asked_ = false;
};

/// What evaluates the parameters as they are.
struct Evaluator {
  std::unique_ptr<Session> session;  ///< shares the run's states
  TrainingData data;
  int64_t batches = 0;
};

/// The folder of --checkpoints, held for this run; null if there is none. Throws a user error if another run holds it,
/// and if it has checkpoints from which --resume does not go on. All ranks call it, before anything is written.
std::unique_ptr<Checkpoints> open_checkpoints(const Console& console, const TrainOptions& options);

/// A training run: its steps, what they show, evaluations and checkpoints. All ranks make the same calls.
class TrainingRun {
 public:
  /// What it is made of; all of it outlives the run.
  struct Parts {
    const Console& console;
    const TrainOptions& options;
    const Model& model;
    const Training& training;
    const TrainingStep& step;
    const Program& program;
    SessionOptions session_options;
    Session& session;
    TrainingData& data;
    const MemoryClasses& memory;
    int64_t steps = 0;                         ///< to make, earlier ones of a run that is resumed included
    std::unique_ptr<Checkpoints> checkpoints;  ///< of open_checkpoints
  };
  explicit TrainingRun(Parts parts);

  /// Goes on from the last checkpoint, if that is asked for; one of the last step leaves only the results to write.
  /// Throws a user error for a checkpoint of a later step, and for data that are not the checkpoint's.
  void begin();
  /// Trains to the last step, or until somebody is told to stop. Throws a running error, on all ranks, if the loss or
  /// the norm of the gradients is not finite: no state has changed then, and no checkpoint. Throws a user error, on all
  /// ranks, for a batch with values out of range.
  void train(const StopSignal& stop, const std::optional<Evaluator>& evaluator);
  /// Whether it was told to stop before its last step.
  bool was_stopped() const { return stopped_; }
  int64_t steps_made() const { return made_; }
  /// Writes --save-final and --save-average.
  void save_results() const;
  /// After that: throws a running error if the last step's states are in no checkpoint although they should be, and a
  /// run to its end has not written its parameters either.
  void require_saved() const;
  /// Adds what the run has shown to an answer.
  void add_to(Json& object) const;

 private:
  enum class Next { goes_on, stops, diverged };

  void resume();
  void compare_optimizer(const std::string& checkpoint) const;
  /// What the states beside the parameters follow from, by the options that say it.
  std::map<std::string, std::string> settings_of_states() const;
  void compare_data(const CheckpointFacts& facts, const std::string& checkpoint);
  bool evaluates_after(int64_t step) const;
  StepFigures make_step(const data::Batch& batch);
  Next next_of(const StepFigures& figures, const StopSignal& stop);
  int64_t largest(int64_t value) const;
  void require_in_range(const data::Batch& batch);
  [[noreturn]] void fail_diverged(const StepFigures& figures, const Tensors& inputs);
  void note_skips(const StepFigures& figures);
  void save();
  void warn_of(const std::string& problem, const char* what_follows = "; training goes on") const;
  void evaluate(const Evaluator& evaluator);
  void write_parameters(const std::string& path, const Tensors& parameters, const Tensors& others) const;

  Parts parts_;
  std::vector<LossTerm> terms_;
  bool is_dynamic_ = false;  // the scale of the loss
  int64_t first_ = 0, made_ = 0;
  std::string last_problem_;  // with the last checkpoint
  Speed speed_;
  std::unique_ptr<FigureFiles> files_;
  std::unique_ptr<StepLines> lines_;
  std::vector<StepFigures> all_;
  std::vector<std::pair<int64_t, double>> evaluations_;
  int64_t skipped_ = 0, skipped_in_a_row_ = 0;
  bool stopped_ = false;
};

}  // namespace tessera::cli

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/batches.h"
#include "tessera/training.h"

/// Training runs: steps over batches, evaluations, checkpoints from which any mesh can resume.
///
///     tessera::Model model = tessera::Model::load("model.onnx");
///     tessera::Training training;
///     training.optimizer = "adamw";
///     tessera::Batches data = tessera::Batches::open("data.npz", model, training);
///     const tessera::Mesh mesh = tessera::Mesh::parse("dp=2");
///     tessera::Trainer trainer = tessera::Trainer::make(model, training, std::move(data), mesh);
///     trainer.train({.steps = 100});
///     trainer.write_parameters("after.npz");
///
/// If ranks are processes (SessionOptions::connection), all of them make the same calls in the same order; results are
/// in the process of rank 0.
namespace tessera {
inline namespace v1 {

/// The results of one step.
struct StepFigures {
  int64_t step = 0;    ///< number of steps so far, this one included
  double seconds = 0;  ///< that it took
  int64_t labels = 0;  ///< in its batch, ignored ones included; samples if there are no labels
  /// In the process of rank 0, like the rest: the loss, the norm of all gradients together, the learning rate.
  double loss = 0, grad_norm = 0, learning_rate = 0;
  std::vector<std::pair<std::string, double>> terms;  ///< of a loss that has several, before they are weighted
  std::optional<double> loss_scale;                   ///< in the step, if it is dynamic
  bool skipped = false;                               ///< gradients were not finite, and no parameter has changed
};

/// Observes a run, on every rank.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  /// A step has been computed; if its loss is not finite, the run then ends with an error.
  virtual void on_step(const StepFigures&) {}
  /// Its states have changed, and nothing has been saved or evaluated since. `ends`: it is the last one of train().
  virtual void after_step(int64_t /*step*/, bool /*ends*/) {}
  virtual void on_evaluation(int64_t /*step*/, double /*loss*/) {}
  /// A warning: a checkpoint could not be written or is damaged, or the data have changed.
  virtual void on_warning(const std::string&) {}
  /// A phase that may take long begins ("compiling"); the result is released when it ends. Phases do not overlap.
  virtual std::shared_ptr<void> on_phase(const std::string&) { return nullptr; }
};

/// All programs of a run. They are compiled, and refused, together, before the first step.
struct TrainingPrograms {
  Training training;
  TrainingStep step;
  Program program;                    ///< of the step
  std::optional<Program> evaluation;  ///< stores the step's states as the step does
  int64_t evaluation_bytes = 0;  ///< the most that a rank needs for it, beyond the step and the states that both share
  int64_t process_beside = 0;    ///< the same of a process
};

/// How they are compiled.
struct TrainingSetup {
  Mesh mesh;
  Plan plan;
  CompileOptions compile;                   ///< whose limit is for the step and its evaluation together
  std::optional<Training> evaluation = {};  ///< as the step's, at the sizes of the data that are evaluated; none: none
  TrainingObserver* observer = nullptr;     ///< observes phases
};

/// `step` is training_step(model, training). Throws user errors as compile() does, and one that names a change that
/// fits if the limit is too small for the step and an evaluation together.
TrainingPrograms compile_training(const Model& model, const Training& training, const TrainingStep& step,
                                  const TrainingSetup& setup = {});

/// A rank of the program with the largest memory need; with stages, it may not be the first.
int64_t largest_rank(const Program& program);

struct TrainerOptions {
  SessionOptions session;                    ///< of the step; its limit and connection are the run's
  std::unique_ptr<Checkpoints> checkpoints;  ///< the folder that save() writes to; null: none
  std::optional<Batches> evaluated;          ///< the batches of evaluate(); make() then compiles an evaluation
  int64_t evaluated_batches = 0;             ///< of one evaluation, at most; 0: all
  TrainingObserver* observer = nullptr;      ///< outlives the trainer
};

/// The schedule of train().
struct TrainingSchedule {
  int64_t steps = 0;                      ///< in total, with those before resume(); 0: one for each batch
  int64_t evaluate_every = 0;             ///< steps from one evaluation to the next; one comes at the end in any case
  int64_t save_every = 0;                 ///< steps from one checkpoint to the next; one comes at the end in any case
  std::function<bool()> stops = nullptr;  ///< asked each step, on all ranks: whether to save and leave
};

/// A training run. Not for several threads.
class Trainer {
 public:
  /// Loads the programs. `model`: the model as read, which write_parameters() writes with new values. Throws user
  /// errors as Session does, and for a value out of range in a batch that will be evaluated.
  Trainer(const Model& model, TrainingPrograms programs, Batches data, TrainerOptions options = {});
  /// All of it: training_step(), compile_training() and the above, at the sizes of the batches. Throws as these do.
  static Trainer make(const Model& model, const Training& training, Batches data, const Mesh& mesh = {},
                      const Plan& plan = {}, TrainerOptions options = {});
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  /// Resumes from the newest good checkpoint of the folder, saved on any mesh. Returns its step; nullopt if there is
  /// none yet. Throws a user error for a checkpoint of more than `most` steps (0: any), of another model or optimizer,
  /// and of other data (Batches::identity()), unless `other_data` accepts these, which then begin at position 0. No
  /// state has changed then.
  std::optional<int64_t> resume(int64_t most = 0, bool other_data = false);

  /// Makes one step on the next batch. Throws a running error, on all ranks, if the loss or the norm of the gradients
  /// is not finite, which names the first tensor that is not; no state has changed then. With a dynamic loss scale, a
  /// step whose gradients are not finite is skipped instead, and ten in a row at a scale of 1 are that error. Throws a
  /// user error, on all ranks, for a batch with values out of range. The data advance past the batch in any case.
  StepFigures step();
  /// The loss over all labels of the batches that are evaluated, with the parameters as they are. Throws a user error
  /// if there are none.
  double evaluate();
  /// Saves a checkpoint of the parameters, all other states and the position of the data, while later steps run.
  /// Returns what went wrong with the one before it, of which the observer hears, too; "" if nothing did, or if there
  /// is no folder. Throws a user error where the folder has checkpoints of another run that this one does not go on
  /// from.
  std::string save();
  /// Waits until all that was saved is written. Returns what went wrong with the last one; "" if nothing did.
  std::string finish();
  /// Steps, evaluations and checkpoints by a schedule, then finish(). Returns whether it reached the last step; false
  /// if it was told to stop. Throws as step() does.
  bool train(const TrainingSchedule& schedule);

  /// Values of all parameters whole, as the model's file has them: those that trained, their copies, running statistics
  /// and frozen ones. `averaged`: with moving averages (Training::average) in place of the parameters that they
  /// average.
  Tensors parameters(bool averaged = false);
  /// Writes these to a .npz or .safetensors file, where moving averages stand beside the parameters as "NAME.average"
  /// unless they are in their place, or as the model to an .onnx file. Throws a user error for another ending, and for
  /// a path that cannot be written.
  void write_parameters(const std::filesystem::path& path, bool averaged = false);

  int64_t steps_made() const;  ///< those before resume() included
  int64_t first_step() const;  ///< steps made before this run began
  int64_t skipped() const;     ///< steps of this run that changed no parameter
  /// The step of the last checkpoint that was saved here; nullopt: none. In the process of rank 0.
  std::optional<int64_t> saved_step() const;
  /// The failure of the last checkpoint, if known; "" if nothing did.
  const std::string& checkpoint_problem() const;
  /// Bytes of each rank at the peak of a step, weights included, without an evaluation.
  const std::vector<int64_t>& peak_bytes() const;
  /// Bytes of the process that needs most, for all of its ranks, likewise (Session::process_bytes).
  int64_t process_bytes() const;
  const TrainingPrograms& programs() const;
  Session& session();  ///< of the step

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Files that take the figures of each step: lines of JSON, and events for TensorBoard (docs/training.md).
class TrainingLog {
 public:
  /// `metrics`: a file; `events`: a folder; empty: none. A run that goes on after `first` steps removes the lines of
  /// later steps, and makes TensorBoard drop later events and the evaluation at `first`. Throws user errors for paths
  /// that cannot be written.
  TrainingLog(const std::filesystem::path& metrics, const std::filesystem::path& events, int64_t first = 0,
              bool goes_on = false);
  ~TrainingLog();
  TrainingLog(TrainingLog&&) noexcept;
  TrainingLog& operator=(TrainingLog&&) noexcept;

  /// `utilization`: the share of the machine's peak that the step took, 0 to 1; `peak_bytes`: of the rank that needs
  /// most.
  void add(const StepFigures& figures, double utilization = 0, int64_t peak_bytes = 0);
  void add_evaluation(int64_t step, double loss);
  /// What can no longer be written ("the metrics"), once; else "".
  std::string problem();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace v1
}  // namespace tessera

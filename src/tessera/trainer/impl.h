#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/launch.h"
#include "tessera/trainer.h"

/// The implementation of a Trainer. Its calls that save, resume and write are in resume.cpp and results.cpp.
namespace tessera {
inline namespace v1 {

struct Trainer::Impl {
  Impl(const Model& model, TrainingPrograms programs, Batches data, TrainerOptions options);

  /// What the ranks do after a step.
  enum class Next { goes_on, stops, diverged };

  bool speaks() const;  ///< whether this is the process of rank 0
  int64_t largest(int64_t value) const;
  std::shared_ptr<void> phase(const std::string& what) const;
  void warn(const std::string& message) const;
  void warn_of_checkpoint(const std::string& problem, const char* what_follows = "; training goes on") const;

  void prepare_evaluations();
  /// One step, reported to the observer; Next::stops if any rank was told to stop meanwhile.
  Next step(const std::function<bool()>& stops);
  StepFigures run(const Batch& batch);
  Next next_of(const std::function<bool()>& stops) const;
  void require_in_range(const Batch& batch);
  [[noreturn]] void fail_diverged(const Tensors& inputs);

  std::map<std::string, std::string> settings_of_states() const;
  void compare_optimizer(const std::string& checkpoint) const;
  /// Whether a checkpoint was made with these data. Throws a user error if it was not, unless others are accepted.
  bool has_data_of(const CheckpointFacts& facts, const std::string& checkpoint, bool other_data) const;
  std::string save();

  struct Trained {
    Tensors parameters, averages;
  };
  Trained trained(bool averaged);

  Model model;  // as its file has it
  TrainingPrograms programs;
  SessionOptions session_options;
  TrainingObserver* observer;
  std::vector<LossTerm> terms;
  bool is_dynamic = false;  // the scale of the loss
  std::vector<int64_t> peaks;
  int64_t process_bytes = 0;
  bool beside_other = false;  // the folder of checkpoints has those of another run
  Batches data;
  std::optional<Batches> evaluated;
  int64_t evaluated_batches = 0;

  int64_t first = 0, made = 0;
  int64_t skipped = 0, skipped_in_a_row = 0;
  StepFigures last;     // of the step that was made last
  std::string problem;  // with the last checkpoint
  std::unique_ptr<Session> session, evaluation;
  std::unique_ptr<Checkpoints> checkpoints;  // its end awaits what the session is still writing
};

}  // namespace v1
}  // namespace tessera

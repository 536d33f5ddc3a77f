#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/batches.h"
#include "tessera/training.h"

namespace tessera::cli {

/// Throws a user error, stage "train".
[[noreturn]] void wrong_training(const std::string& message);

/// The options of a training step and its data: --loss, --optimizer, --lr, --data, …, and --config.
struct TrainOptions {
  void declare(CLI::App& app);
  /// Those of the step alone: without data, checkpoints and outputs.
  void declare_training(CLI::App& app);
  /// Takes what the file of --config says for options that the command line does not give. Throws a user error for a
  /// key that is not an option, and for a value that the option does not take.
  void read_config() const;
  /// What `training_step` takes, without sizes: in the plan's type, and with its micro-batches.
  Training training(const Plan& plan) const;
  /// How --data becomes batches; with `evaluates`, the samples that evaluations take of --eval-data or --held-out.
  BatchOptions batches(bool evaluates, size_t memory_limit) const;

  Training step;                                                                    ///< without what follows
  std::string loss = "cross-entropy", optimizer = "adamw", learning_rate = "1e-3";  ///< the words as they were given
  std::string config, data, eval_data, separator, metrics, tensorboard, profile, memory_plan, save_final, save_average,
      emit;
  std::string checkpoints;
  std::vector<std::string> rate_factors, init;
  int steps = 0;  ///< 0: as many as the data has
  int batch = 0, sequence = 0;
  int eval_every = 0, eval_steps = 0, save_every = 0, keep = 3;
  bool resume = false, other_data = false, dry_run = false, verbose = false;
  double held_out = 0;
  uint64_t seed = 0;

 private:
  void declare_data(CLI::App& app);
  void declare_checkpoints(CLI::App& app);

  CLI::App* app_ = nullptr;
};

}  // namespace tessera::cli

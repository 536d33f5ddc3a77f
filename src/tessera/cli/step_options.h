#pragma once

#include <optional>
#include <string>

#include "tessera/cli/options.h"
#include "tessera/cli/train_options.h"

namespace tessera::cli {

/// A model, or a training step of it, to be compiled and predicted.
struct AskedStep {
  Model model;
  Plan plan;              ///< with a size for each symbol of the model
  SymbolSizes stated;     ///< the sizes that the options or the plan file give
  int micro_batches = 0;  ///< that they give, which a model that does not train has already
  std::optional<Training> training;
  std::string note;  ///< about the sizes that are assumed; "" if all are given

  /// Throws user errors as compile() does.
  Program compiled(const Mesh& mesh, const CompileOptions& options) const;
};

/// A model, --train, and the options of plans and of training steps, for commands that run nothing.
struct StepOptions {
  void declare(CLI::App& app, const char* train_help);
  /// Reads the model and the plan.
  AskedStep asked(const Console& console);

  std::string model;
  bool trains = false;
  PlanOptions plan;
  TrainOptions training;
};

}  // namespace tessera::cli

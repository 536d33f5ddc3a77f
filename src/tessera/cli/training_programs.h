#pragma once

#include <optional>
#include <string>

#include "tessera/cli/console.h"
#include "tessera/cli/fitting.h"
#include "tessera/training.h"

namespace tessera::cli {

/// All programs of a training run. They are compiled, and refused, together: before the first step, and by a dry run.
struct TrainingPrograms {
  Program step;
  std::optional<Program> evaluation;  ///< stores the step's states as the step does
  int64_t evaluation_bytes = 0;       ///< that a rank needs for it, at most, beside the step and the states they share
  int64_t process_beside = 0;         ///< likewise, bytes of a process
};

/// What they are compiled from.
struct TrainingSet {
  Fitting fitting;  ///< the step's model, plan and options, without a limit; says how many ranks a process has
  const TrainingStep& step;
  std::optional<Training> evaluation;  ///< as the step, at the sizes of the data that are evaluated
  size_t process_limit = 0;            ///< bytes of a process for all of its ranks; 0: any
};

/// Throws user errors as compile() does, and one that names a change that fits, if the limit is too small for
/// the step and an evaluation together.
TrainingPrograms compile_all(const Console& console, const TrainingSet& set);

}  // namespace tessera::cli

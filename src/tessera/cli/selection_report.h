#pragma once

#include "tessera/cli/console.h"
#include "tessera/training.h"

namespace tessera::cli {

/// What trains, what does not and why, what is tied, and what each pattern reached: a row for each kind, or, if
/// `verbose`, for each tensor.
void print_selection(const Console& console, const TrainingStep& step, bool verbose);

/// The same, whole: {"tensors": […], "patterns": […]}.
Json selection_json(const TrainingStep& step);

}  // namespace tessera::cli

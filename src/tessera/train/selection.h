#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/train/step.h"
#include "tessera/train/ties.h"

namespace tessera::train {

/// Which of a model's initializers train, and why the others do not: as the exporter recorded, as options say, else by
/// who reads them (docs/training.md).
struct Selection {
  OnnxModel model;  ///< the model, in which tied copies are computed from their source, and what trains is a state
  std::vector<Selected> table;  ///< of every float initializer that is read, but numbers that nothing names
  std::vector<Reached> reached;
  std::vector<Tie> ties;
  std::vector<std::string> notes;
  std::set<std::string> trained, statistics;  ///< states: those that train, and running statistics that move

  /// Whether a pattern means a state: by its name, one of the exported model, or one of a copy.
  bool matches(std::string_view pattern, const std::string& state) const;
  /// Whether an option froze it.
  bool is_frozen(const std::string& state) const;

  std::map<std::string, std::vector<std::string>> names;  ///< that mean a state, beside its own
  std::vector<std::string> freeze;                        ///< patterns
};

/// Throws user errors for patterns that match nothing (if the exporter folded the parameter away, the error says so),
/// and for named initializers that an operator needs before the run.
Selection select(const OnnxModel& model, const StepOptions& options);

}  // namespace tessera::train

#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/train/selection.h"
#include "tessera/train/step.h"

namespace tessera::train {

/// A model prepared for a step: raised, in its compute precision; what trains is a state that changes.
struct Forward {
  OnnxModel model;
  /// The running statistics that a run updates, by name, with the output of `model` that is the next value.
  std::map<std::string, size_t> statistics;
  std::vector<std::string> notes;
};

/// `model` is the selection's, at the sizes and with the outputs of the step, to which next values of statistics are
/// added. Throws a user error for what cannot train.
Forward make_forward(OnnxModel model, const Selection& selection, const StepOptions& options);

}  // namespace tessera::train

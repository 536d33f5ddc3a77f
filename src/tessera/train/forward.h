#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/train/step.h"

namespace tessera::train {

/// A model made ready for a step: raised, in the precision that it computes in; what trains is a State that changes.
struct Forward {
  OnnxModel model;
  /// The running statistics that a run moves, by name: the output of `model` that is the next value.
  std::map<std::string, size_t> statistics;
  std::vector<std::string> notes;
};

/// `model` has the sizes and the outputs of the step, to which next values of statistics are added. Throws a user error
/// for a pattern of the options that matches nothing in `given`, the model as it came, and for what cannot train.
Forward make_forward(OnnxModel model, const OnnxModel& given, const StepOptions& options);

/// The running statistics of BatchNormalizations that a step of these options moves.
std::set<std::string> statistics_that_step(const OnnxModel& model, const StepOptions& options);

}  // namespace tessera::train

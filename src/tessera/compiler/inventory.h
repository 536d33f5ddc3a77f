#pragma once

#include <set>
#include <string>
#include <vector>

#include "tessera/inspect.h"
#include "tessera/ir/graph.h"

/// What a model consists of.
namespace tessera::compiler {

/// Names of operators that stop a model from running here. Of one that was rewritten: those that the compiler does not
/// know or that have no kernel. Of one as it was read: those that neither the compiler nor the model's own functions
/// know, also in branches and bodies.
std::set<std::string> uncovered_of_rewritten(const OnnxModel& model);
std::set<std::string> uncovered_of_read(const OnnxModel& model);

/// The operators of a graph, most frequent first.
std::vector<OperatorCount> operator_counts(const Graph& graph, const std::set<std::string>& uncovered);

/// A model's parameters, and the weights that Constant nodes hold.
struct Weights {
  std::vector<WeightInfo> all;  ///< in the file's order
  int64_t elements = 0, bytes = 0;
};
Weights weights_of(const OnnxModel& model);

}  // namespace tessera::compiler

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"

/// Divides a rank's model in two: what it computes once, and what it computes in every step.
namespace tessera::program_io {

/// Moves the nodes that compute these results into a separate model and returns it. The results are its outputs, and
/// become inputs of `model`. Nodes and initializers that both models need are in both. Results that are not in the
/// model, or that depend on communication or on the model's inputs, stay; nullopt if no others are left.
std::optional<OnnxModel> take_init(OnnxModel& model, const std::vector<std::string>& results);

/// The inverse. Throws a user error (stage "program") that names `source`, the file of `init`, if it does not match the
/// model.
void put_back_init(OnnxModel& model, const OnnxModel& init, const std::string& source);

}  // namespace tessera::program_io

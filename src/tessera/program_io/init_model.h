#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"

/// A rank's model in two: what it computes once, and what it computes in every step.
namespace tessera::program_io {

/// Takes what makes these results out of a model. Returns the model that makes them, as its outputs; `model` has them
/// as inputs. Both hold the nodes and initializers that both need. Results that the model has not, or not without
/// communication or the model's inputs, stay; nullopt if none is left.
std::optional<OnnxModel> take_init(OnnxModel& model, const std::vector<std::string>& results);

/// The inverse. Throws a user error (stage "program") that names `source`, the file of `init`, if it does not fit the
/// model.
void put_back_init(OnnxModel& model, const OnnxModel& init, const std::string& source);

}  // namespace tessera::program_io

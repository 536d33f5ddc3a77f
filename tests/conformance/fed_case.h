#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "conformance/node_case.h"
#include "conformance/run_case.h"

/// ONNX's backend tests give operands as inputs of the model; models have them in other places, too.
namespace tessera::conformance {

enum class Feed {
  inputs,        ///< of the model, as the test has it
  initializers,  ///< of the model's file
  constants,     ///< Constant nodes
  results,       ///< of nodes that cannot be folded
};
std::string_view name_of(Feed feed);

/// Gives the case's operands in that way, loads it from a file in `folder`, as a user does, and runs it on one rank,
/// then on two: what can be split is, and with initializers the program is written and read back. Compares with the
/// case's outputs, and the second run with the first.
Outcome run_fed(const NodeCase& node_case, Feed feed, const std::filesystem::path& folder);

}  // namespace tessera::conformance

#pragma once

#include <string>
#include <vector>

#include "conformance/node_case.h"

/// Running ONNX's backend tests, whole and sharded.
namespace tessera::conformance {

enum class Verdict {
  pass,
  unsupported,  ///< a user error
  wrong,        ///< another answer than the expected one
  broken,       ///< an error that is not the user's
};
std::string_view name_of(Verdict verdict);

struct Outcome {
  Verdict verdict = Verdict::pass;
  std::string message;  ///< of what does not pass
};

/// Compiles and runs the case of a folder on one rank.
Outcome run_alone(const std::filesystem::path& folder);

/// Runs a case that passes on one rank once per mesh, input and dimension, that dimension split over the mesh as far as
/// the operator can, and compares with the run on one rank: floats within the tolerance of their dtype, all else
/// exactly. Returns what differs or fails, one line each.
std::vector<std::string> run_sharded(const std::filesystem::path& folder, const std::vector<std::string>& meshes);

}  // namespace tessera::conformance

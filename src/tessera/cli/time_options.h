#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/cli/console.h"
#include "tessera/time.h"

namespace CLI {
class App;
}

/// Predicted times, for people and as JSON.
namespace tessera::cli {

/// --machine, --cluster
struct TimeOptions {
  void declare(CLI::App& app);
  /// --slow and --scale too.
  void declare_changes(CLI::App& app);
  bool asked() const { return !machine.empty() || !cluster.empty(); }
  /// Throws a user error unless exactly one of both options is given, for a file that is invalid, and for changes that
  /// are. `topology`: of --topology; it overrides the machine's links.
  PredictSettings settings(const Topology& topology) const;

  /// What the compiler should know of the links of a mesh: `topology`, of --topology, or the machine's.
  Topology topology(const Topology& topology, const Mesh& mesh) const;
  /// The prediction. If --machine names a file of this machine and `measures`, what it lacks is measured first, and
  /// added to the file.
  Prediction predict(const Console& console, const Program& program, PredictSettings settings, bool measures) const;

  std::string machine, cluster;
  std::vector<std::string> slow, scale;
};

/// What --machine or --cluster predicts.
struct Forecast {
  PredictSettings settings;
  Prediction prediction;
};

/// "predicted 12.0 ms, measured 12.5 ms (median): -4 %"
std::string compared_text(const Prediction& prediction, double measured_ms);
void print_prediction(const Console& console, const Prediction& prediction, const PredictSettings& settings);
/// {"step_ms": …, "compute_ms": …, "exposed_ms": …, "idle_ms": …, "bound_ms": …, …}
Json prediction_json(const Prediction& prediction, const PredictSettings& settings);

}  // namespace tessera::cli

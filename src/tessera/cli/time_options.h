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

/// What --machine or --cluster predicts.
struct Forecast {
  PredictSettings settings;
  Prediction prediction;
};

/// --machine, --cluster
struct TimeOptions {
  void declare(CLI::App& app);
  /// --slow and --scale too.
  void declare_changes(CLI::App& app);
  bool asked() const { return !machine.empty() || !cluster.empty(); }
  /// Throws a user error unless exactly one of both options is given, for a file that is invalid, and for changes that
  /// are. `topology`: of --topology; it overrides the machine's links.
  PredictSettings settings(const Topology& topology) const;
  /// The same, for commands that need not predict: nullopt if neither option is given.
  std::optional<PredictSettings> settings_if_asked(const Topology& topology) const;

  /// The prediction. With `measures`, if --machine names a file of this machine, what it lacks is measured first, and
  /// added to the file; where ranks are processes, all of them make this call, on machines that are all like that.
  /// `traces`, if not null, gets Chakra's (tessera::predict).
  Forecast predict(const Console& console, const Program& program, PredictSettings settings, bool measures,
                   std::vector<TraceFile>* traces = nullptr) const;
  /// Of a program that `session` has run with inputs of these sizes. Nullopt if no machine is named.
  std::optional<Forecast> predict_run(const Console& console, const Program& program, const Session& session,
                                      const Topology& topology, const SymbolSizes& sizes, bool overlap) const;

  std::string machine, cluster;
  std::vector<std::string> slow, scale;
};

/// "predicted 12.0 ms, measured 12.5 ms (median): -4 %"
std::string compared_text(const Prediction& prediction, double measured_ms);
void print_forecast(const Console& console, const Forecast& forecast);
/// {"step_ms": …, "compute_ms": …, "exposed_ms": …, "idle_ms": …, "bound_ms": …, …}
Json forecast_json(const Forecast& forecast);

}  // namespace tessera::cli

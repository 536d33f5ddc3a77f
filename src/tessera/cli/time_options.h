#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/cli/console.h"
#include "tessera/time.h"

namespace CLI {
class App;
}

/// Predicted times, for people and as JSON.
namespace tessera::cli {

/// "17=1.3", "link:ethernet=2" as a key and a number above 0. Throws a user error that shows `example` for another
/// text.
std::pair<std::string, double> factor_of(const std::string& stage, const std::string& text, const std::string& example);

/// "12.3 %"
std::string percent(double share);

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
  /// Throws a user error unless exactly one of both options is given, and for an invalid file or invalid changes.
  /// `topology`: of --topology; it overrides the machine's links.
  PredictSettings settings(const Topology& topology) const;
  /// The same, for commands that need not predict: nullopt if neither option is given.
  std::optional<PredictSettings> settings_if_asked(const Topology& topology) const;
  /// Lets a compilation choose by the times of the machine, if one is named; else the topology is all that it knows.
  void choose(const Console& console, const Topology& topology, const Mesh& mesh, CompileOptions& options) const;

  /// The prediction. With `measures`, if --machine names a file of this machine, what it lacks is measured first, and
  /// added to the file. If ranks are processes, all of them make this call; then it must be a file of all machines.
  /// `traces`, if not null, gets Chakra's (tessera::predict).
  Forecast predict(const Console& console, const Program& program, PredictSettings settings, bool measures,
                   std::vector<TraceFile>* traces = nullptr) const;
  /// Whether --machine names a file of this machine.
  bool is_here(const PredictSettings& settings) const;
  /// Measures what the file lacks for the program, adds it to both, and returns whether there was anything.
  bool measure(const Console& console, const Program& program, PredictSettings& settings) const;
  /// Of a program that ranks of so many threads have run with inputs of these sizes. Nullopt if no machine is named.
  std::optional<Forecast> predict_run(const Console& console, const Program& program, int threads_per_rank,
                                      const Topology& topology, const SymbolSizes& sizes, bool overlap) const;

  std::string machine, cluster;
  std::vector<std::string> slow, scale;
};

/// "predicted 12.0 ms, measured 12.5 ms (median): -4 %"
std::string compared_text(const Prediction& prediction, double measured_ms);
void print_forecast(const Console& console, const Forecast& forecast);
/// {"step_ms": …, "compute_ms": …, "exposed_ms": …, "idle_ms": …, "bound_ms": …, …}
Json forecast_json(const Forecast& forecast);
Json prediction_json(const Prediction& prediction);
/// What no order of the same operators can beat.
std::string bound_text(const Prediction& prediction);

}  // namespace tessera::cli

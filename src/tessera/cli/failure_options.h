#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/cli/console.h"
#include "tessera/goodput.h"
#include "tessera/program.h"

namespace CLI {
class App;
}

/// What failures cost a training run.
namespace tessera::cli {

/// Seconds of "90", "500ms", "90s", "5m", "3h" or "54d"; nullopt for other texts.
std::optional<double> parse_duration(std::string_view text);

/// What a simulated training run makes of its time (goodput.h).
struct RunForecast {
  FailureModel failures;
  double step = 0;  ///< seconds
  int64_t checkpoint_bytes = 0;
  int64_t every = 1;    ///< steps between checkpoints
  bool chosen = false;  ///< `every` is the best one, and not the one that was asked for
  double best = 0;      ///< seconds between checkpoints that are best
  Goodput goodput;
  int64_t steps = 0;    ///< of the run; 0: unknown
  double expected = 0;  ///< seconds of the run
};

/// What the options say; what depends on the program is open.
struct AskedFailures {
  double mtbf = 0;           ///< seconds
  bool of_a_device = false;  ///< mtbf is that of one rank's device
  double restart = 0;        ///< seconds
  double checkpoint = 0;     ///< seconds; 0 if `bandwidth` is given
  double bandwidth = 0;      ///< bytes per second, of all ranks together; 0: not given
  int64_t every = 0;         ///< steps between checkpoints; 0: the best number
  int64_t steps = 0;         ///< of the run; 0: unknown

  /// `step_seconds`: of a step of `program`. Throws a user error if such a run makes no progress.
  RunForecast forecast(const Program& program, double step_seconds) const;
};

/// --mtbf, --device-mtbf, --restart-cost, --checkpoint-cost, --checkpoint-bandwidth, --checkpoint-every, --steps
struct FailureOptions {
  /// All of them need --train.
  void declare(CLI::App& app);
  /// Nullopt if none of them is given. Throws user errors that name the option.
  std::optional<AskedFailures> asked() const;

  std::string mtbf, device_mtbf, restart, checkpoint, bandwidth, every;
  int64_t steps = 0;
};

void print_run(const Console& console, const RunForecast& run);
Json run_json(const RunForecast& run);

}  // namespace tessera::cli

#include "tessera/cli/failure_options.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "tessera/cli/help.h"
#include "tessera/cli/options.h"

namespace tessera::cli {
namespace {

[[noreturn]] void wrong(const std::string& message) {
  throw Error(ErrorKind::user, "goodput", message);
}

double duration_of(const char* option, const std::string& text, const Bounds& bounds) {
  const std::optional<double> seconds = parse_duration(text);
  if (!seconds || !bounds.hold(*seconds))
    wrong(std::string(option) + " '" + text + "' is not a duration; write " + bounds.text() +
          ", with a unit ms, s, m, h or d, or without one in seconds: 90, 5m, 3h");
  return *seconds;
}

// What a checkpoint holds: all states, whole.
int64_t checkpoint_bytes_of(const Program& program) {
  double bits = 0;
  for (const StateInfo& state : program.states()) {
    double elements = 1;
    for (const std::string& extent : state.tensor.shape) elements *= std::strtod(extent.c_str(), nullptr);
    bits += elements * static_cast<double>(bits_of(state.tensor.dtype));
  }
  return static_cast<int64_t>(bits / 8);
}

std::string share_text(double share) {
  return ratio_text(100 * share) + " %";
}

std::string short_or_long(double seconds) {
  return seconds < 60 ? time_text(seconds) : duration_text(seconds);
}

}  // namespace

std::optional<double> parse_duration(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1},   {"ms", 1e-3}, {"s", 1},
                                                            {"m", 60}, {"h", 3600},  {"d", 86400}};
  for (const auto& [name, seconds] : kUnits)
    if (unit == name) return number * seconds;
  return std::nullopt;
}

void FailureOptions::declare(CLI::App& app) {
  under(app, Heading::failures);
  CLI::Option* whole =
      app.add_option("--mtbf", mtbf,
                     "the mean time between failures, each of which stops all ranks, e.g. 3h; prints the "
                     "share of time that makes progress");
  CLI::Option* device =
      app.add_option("--device-mtbf", device_mtbf, "the mean time between failures of one device, e.g. 50000h");
  CLI::Option* restarts = app.add_option(
      "--restart-cost", restart,
      "the time from a failure until steps go on, e.g. 5m: noticing it, replacing what failed, loading a checkpoint");
  CLI::Option* cost =
      app.add_option("--checkpoint-cost", checkpoint, "how long saving a checkpoint stops the steps, e.g. 30s");
  CLI::Option* rate =
      app.add_option("--checkpoint-bandwidth", bandwidth,
                     "bytes per second that all ranks together write, e.g. 100G, instead of --checkpoint-cost");
  CLI::Option* interval =
      app.add_option("--checkpoint-every", every, "steps between checkpoints; by default (auto), the best number");
  CLI::Option* length = app.add_option("--steps", steps, "steps of the run, whose expected time is printed");
  length->check(above_zero());
  whole->excludes(device);
  cost->excludes(rate);
  for (CLI::Option* option : {whole, device, restarts, cost}) option->type_name("TIME");
  rate->type_name("BYTES");
  interval->type_name("STEPS");
  for (CLI::Option* option : {whole, device, restarts, cost, rate, interval, length})
    option->needs(app.get_option("--train"));
}

std::optional<AskedFailures> FailureOptions::asked() const {
  if (mtbf.empty() && device_mtbf.empty()) {
    if (!restart.empty() || !checkpoint.empty() || !bandwidth.empty() || !every.empty() || steps > 0)
      wrong("how often failures come is unknown; give --mtbf 3h, or --device-mtbf 50000h");
    return std::nullopt;
  }
  AskedFailures asked;
  asked.of_a_device = mtbf.empty();
  asked.mtbf = asked.of_a_device ? duration_of("--device-mtbf", device_mtbf, Bounds::above(0))
                                 : duration_of("--mtbf", mtbf, Bounds::above(0));
  if (restart.empty()) wrong("what a restart costs is unknown; give --restart-cost 5m");
  asked.restart = duration_of("--restart-cost", restart, Bounds::at_least(0));
  if (!bandwidth.empty())
    asked.bandwidth = static_cast<double>(parse_memory(bandwidth));
  else if (!checkpoint.empty())
    asked.checkpoint = duration_of("--checkpoint-cost", checkpoint, Bounds::at_least(0));
  else
    wrong("what a checkpoint costs is unknown; give --checkpoint-cost 30s, or --checkpoint-bandwidth 100G");
  asked.steps = steps;
  if (every.empty() || every == "auto") return asked;
  const auto [end, error] = std::from_chars(every.data(), every.data() + every.size(), asked.every);
  if (error != std::errc() || end != every.data() + every.size() || asked.every < 1)
    wrong("--checkpoint-every '" + every + "' is not a number of steps; write a whole number of at least 1, or auto");
  return asked;
}

RunForecast AskedFailures::forecast(const Program& program, double step_seconds) const {
  RunForecast run;
  run.step = step_seconds;
  run.steps = steps;
  run.checkpoint_bytes = checkpoint_bytes_of(program);
  run.failures = {.mtbf = of_a_device ? mtbf / static_cast<double>(program.mesh().size()) : mtbf,
                  .restart = restart,
                  .checkpoint = bandwidth > 0 ? static_cast<double>(run.checkpoint_bytes) / bandwidth : checkpoint};
  run.best = best_checkpoint_interval(run.failures);
  run.chosen = every == 0;
  run.every = run.chosen ? best_checkpoint_steps(run.failures, run.step) : every;
  run.goodput = goodput(run.failures, run.step, run.every);
  if (steps > 0) run.expected = expected_seconds(run.failures, run.step, run.every, steps);
  return run;
}

void print_run(const Console& console, const RunForecast& run) {
  const Goodput& found = run.goodput;
  const double interval = run.step * static_cast<double>(run.every);
  console.say("with a failure every " + short_or_long(run.failures.mtbf) + ", " + share_text(found.share) +
              " of the time makes progress; checkpoints take " + share_text(found.checkpoint_share) +
              ", steps that failures undo " + share_text(found.lost_share) + ", restarts of " +
              short_or_long(run.failures.restart) + " " + share_text(found.restart_share));
  console.say("a checkpoint of " + bytes_text(static_cast<double>(run.checkpoint_bytes)) + " in " +
              short_or_long(run.failures.checkpoint) + " every " + counted(run.every, "step") + " (" +
              short_or_long(interval) + ")" +
              (run.chosen ? ", which is best" : "; best are " + short_or_long(run.best) + " of steps between two"));
  if (run.steps > 0)
    console.say(counted(run.steps, "step") + (run.steps == 1 ? " is" : " are") + " expected to take " +
                short_or_long(run.expected) + ", with " + ratio_text(run.expected / run.failures.mtbf) +
                " failures; without any, and without checkpoints, " +
                short_or_long(run.step * static_cast<double>(run.steps)));
}

Json run_json(const RunForecast& run) {
  Json object = {{"mtbf_seconds", run.failures.mtbf},
                 {"restart_seconds", run.failures.restart},
                 {"checkpoint_seconds", run.failures.checkpoint},
                 {"checkpoint_bytes", run.checkpoint_bytes},
                 {"checkpoint_every", run.every},
                 {"best_interval_seconds", run.best},
                 {"goodput", run.goodput.share},
                 {"checkpoint_share", run.goodput.checkpoint_share},
                 {"lost_share", run.goodput.lost_share},
                 {"restart_share", run.goodput.restart_share}};
  if (run.steps > 0) {
    object["steps"] = run.steps;
    object["expected_seconds"] = run.expected;
    object["expected_failures"] = run.expected / run.failures.mtbf;
  }
  return object;
}

}  // namespace tessera::cli

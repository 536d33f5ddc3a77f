#include "tessera/cli/time_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tessera/cli/help.h"
#include "tessera/cli/options.h"
#include "tessera/cli/overlap_report.h"
#include "tessera/cli/path_options.h"
#include "tessera/cli/progress.h"
#include "tessera/files.h"

namespace tessera::cli {
namespace {

constexpr size_t kClassesPrinted = 8, kChainPrinted = 8;

[[noreturn]] void wrong(const std::string& message) {
  throw Error(ErrorKind::user, "simulate", message);
}

}  // namespace

std::pair<std::string, double> factor_of(const std::string& stage, const std::string& text,
                                         const std::string& example) {
  const size_t equals = text.rfind('=');
  if (equals != std::string::npos && equals > 0)
    if (const std::optional<double> factor = Bounds::above(0).parse(text.substr(equals + 1)))
      return {text.substr(0, equals), *factor};
  throw Error(ErrorKind::user, stage, "'" + text + "' is not a name with a factor above 0; write it as " + example);
}

std::string percent(double share) {
  if (std::abs(share) < 5e-5) share = 0;  // and not "-0.00"
  return ratio_text(100 * share) + " %";
}

void TimeOptions::declare(CLI::App& app) {
  under(app, Heading::measurement);
  app.add_option("--machine", machine, "predict times of this machine: a file that tessera calibrate wrote");
  app.add_option("--cluster", cluster,
                 "predict times of machines that you need not have: " + joined(known_machines()) +
                     "; or a machine file, as docs/time.md describes it");
  const auto file_of_cluster = [](const std::string& text) {
    const std::vector<std::string> known = known_machines();
    return std::find(known.begin(), known.end(), text) == known.end() ? std::vector{text} : std::vector<std::string>{};
  };
  declare_paths(app, {{"--machine", PathUse::reads}, {"--cluster", PathUse::reads, file_of_cluster}});
}

void TimeOptions::declare_changes(CLI::App& app) {
  under(app, Heading::measurement);
  repeatable(app.add_option("--slow", slow, "RANK=FACTOR: the kernels of this rank take FACTOR times as long"))
      ->type_name("RANK=FACTOR");
  repeatable(app.add_option("--scale", scale,
                            "link:NAME=FACTOR: the bandwidth of this level of links is FACTOR times as high"))
      ->type_name("link:NAME=FACTOR");
}

PredictSettings TimeOptions::settings(const Topology& topology) const {
  if (!machine.empty() && !cluster.empty()) wrong("--machine and --cluster both name machines; give one of them");
  if (!asked()) wrong("no machine is named; give --machine FILE or --cluster " + known_machines().front());
  PredictSettings settings;
  settings.machine = load_machine(machine.empty() ? cluster : machine);
  settings.topology = topology;
  for (const std::string& text : slow) {
    const auto [rank, factor] = factor_of("simulate", text, "--slow 17=1.3");
    int64_t number = -1;
    const auto [end, error] = std::from_chars(rank.data(), rank.data() + rank.size(), number);
    if (error != std::errc() || end != rank.data() + rank.size() || number < 0)
      wrong("'" + rank + "' is not a rank; write it as --slow 17=1.3");
    settings.slow[number] = factor;
  }
  for (const std::string& text : scale) {
    const auto [name, factor] = factor_of("simulate", text, "--scale link:ethernet=2");
    if (!name.starts_with("link:")) wrong("'" + name + "' cannot be scaled; write it as --scale link:ethernet=2");
    settings.link_scale[name.substr(5)] = factor;
  }
  return settings;
}

std::optional<PredictSettings> TimeOptions::settings_if_asked(const Topology& topology) const {
  return asked() ? std::optional(settings(topology)) : std::nullopt;
}

void TimeOptions::choose(const Console& console, const Topology& topology, const Mesh& mesh,
                         CompileOptions& options) const {
  options.topology = topology;
  std::optional<PredictSettings> settings = settings_if_asked(topology);
  if (!settings) return;
  settings->connection = console.connection;
  settings->choose(options, mesh);
}

bool TimeOptions::is_here(const PredictSettings& settings) const {
  return !machine.empty() && is_this_machine(settings.machine);
}

bool TimeOptions::measure(const Console& console, const Program& program, PredictSettings& settings) const {
  Progress progress(console, "measuring what " + machine + " lacks");
  const bool any =
      measure_missing(program, settings, [&](const std::string& what) { progress.next("measuring " + what); });
  if (any && console.speaks()) write_file(machine, settings.machine.to_json());
  return any;
}

Forecast TimeOptions::predict(const Console& console, const Program& program, PredictSettings settings, bool measures,
                              std::vector<TraceFile>* traces) const {
  settings.connection = console.connection;
  bool here = is_here(settings);
  if (!machine.empty() && !here)
    console.note("note: " + machine + " describes another machine (" + settings.machine.processor + ", " +
                 std::to_string(settings.machine.cores) + " cores, " + settings.machine.date +
                 "), so nothing is measured here");
  if (measures && console.connection) {
    const std::vector<int64_t> all = console.connection->from_all(here);
    here = std::find(all.begin(), all.end(), 0) == all.end();
  }
  if (measures && here) measure(console, program, settings);
  const Progress progress(console, "simulating");
  Prediction prediction = traces ? tessera::predict(program, settings, *traces) : tessera::predict(program, settings);
  return {std::move(settings), std::move(prediction)};
}

std::optional<Forecast> TimeOptions::predict_run(const Console& console, const Program& program, int threads_per_rank,
                                                 const Topology& topology, const SymbolSizes& sizes,
                                                 bool overlap) const {
  std::optional<PredictSettings> settings = settings_if_asked(topology);
  if (!settings) return std::nullopt;
  settings->sizes = sizes;
  settings->threads_per_rank = threads_per_rank;
  settings->overlap = overlap;
  return predict(console, program, std::move(*settings), true);
}

namespace {

std::string ranks_text(const PredictedRanks& each) {
  return each.count == 1 ? "rank " + std::to_string(each.rank)
                         : std::to_string(each.count) + " like rank " + std::to_string(each.rank);
}

}  // namespace

std::string compared_text(const Prediction& prediction, double measured_ms) {
  return "predicted " + time_text(prediction.step_ms * 1e-3) + ", measured " + time_text(measured_ms * 1e-3) +
         " (median): " + percent(prediction.step_ms / measured_ms - 1);
}

std::string bound_text(const Prediction& prediction) {
  return "no order of the same operators beats " + ms_text(prediction.bound_ms) + ": computation " +
         ms_text(prediction.computation_ms) + ", busiest link " + ms_text(prediction.link_ms) + ", longest chain " +
         ms_text(prediction.dependences_ms);
}

namespace {

void print_bubble(const Console& console, const Prediction& prediction) {
  console.say("bubble of the pipeline: " + percent(prediction.bubble->share));
  Table table({"ranks", "idle", "warm-up", "imbalance", "link", "tail"});
  const std::vector<PipelineIdle>& ranks = prediction.bubble->ranks;
  for (size_t c = 0; c < ranks.size() && c < kClassesPrinted; ++c) {
    const PipelineIdle& idle = ranks[c];
    table.add({ranks_text(prediction.classes[c]), ms_text(idle.total()), ms_text(idle.warm_up), ms_text(idle.imbalance),
               ms_text(idle.link), ms_text(idle.tail)});
  }
  table.print(console);
}

}  // namespace

void print_forecast(const Console& console, const Forecast& forecast) {
  const auto& [settings, prediction] = forecast;
  const auto ms = [](double value) { return time_text(value * 1e-3); };
  console.say("predicted for " + settings.machine.name + ": " + ms(prediction.step_ms) + " a step" +
              (prediction.extrapolated > 0
                   ? "; " + percent(prediction.extrapolated) + " of the operators' time is computed, not measured"
                   : ""));
  if (prediction.uncertain > 0)
    console.say("measurements did not agree for " + percent(prediction.uncertain) +
                " of the operators' time; the next run with --machine repeats them");
  Table table({"ranks", "compute", "beside communication", "exposed", "idle"});
  for (size_t c = 0; c < prediction.classes.size() && c < kClassesPrinted; ++c) {
    const PredictedRanks& each = prediction.classes[c];
    table.add({ranks_text(each), ms(each.compute_ms), ms(each.overlapped_ms), ms(each.exposed_ms), ms(each.idle_ms)});
  }
  table.print(console);
  if (prediction.classes.size() > kClassesPrinted)
    console.say(std::to_string(prediction.classes.size() - kClassesPrinted) + " more classes of ranks");
  if (prediction.bubble) print_bubble(console, prediction);
  console.say(bound_text(prediction));
  constexpr double kNothing = 5e-5;  // is printed as 0.00 %
  if (const double above = prediction.bound_ms > 0 ? prediction.step_ms / prediction.bound_ms - 1 : 0;
      above >= kNothing)
    console.say("the step takes " + percent(above) + " more than this bound");
  if (const std::string text = waits_text(prediction); !text.empty()) console.say(text);
  console.say("what the step waited for, by operator:");
  Table chain({"operator", "count", "time", "share"});
  for (size_t i = 0; i < prediction.chain.size() && i < kChainPrinted; ++i) {
    const ChainPart& part = prediction.chain[i];
    chain.add({part.op, std::to_string(part.count), ms(part.ms),
               percent(prediction.step_ms > 0 ? part.ms / prediction.step_ms : 0)});
  }
  chain.print(console);
}

Json forecast_json(const Forecast& forecast) {
  Json object = {{"machine", forecast.settings.machine.name}};
  object.update(prediction_json(forecast.prediction));
  return object;
}

Json bubble_json(const std::optional<PipelineBubble>& bubble) {
  if (!bubble) return nullptr;
  Json ranks = Json::array();
  for (const PipelineIdle& idle : bubble->ranks)
    ranks.push_back({{"warm_up_ms", idle.warm_up},
                     {"imbalance_ms", idle.imbalance},
                     {"link_ms", idle.link},
                     {"tail_ms", idle.tail}});
  return {{"share", bubble->share}, {"ranks", ranks}};
}

Json prediction_json(const Prediction& prediction) {
  Json classes = Json::array(), chain = Json::array(), collectives = Json::array();
  for (const PredictedRanks& each : prediction.classes)
    classes.push_back({{"rank", each.rank},
                       {"count", each.count},
                       {"compute_ms", each.compute_ms},
                       {"overlapped_ms", each.overlapped_ms},
                       {"exposed_ms", each.exposed_ms},
                       {"idle_ms", each.idle_ms},
                       {"flops", each.flops},
                       {"received_bytes", each.received_bytes},
                       {"sent_bytes", each.sent_bytes}});
  for (const ChainPart& part : prediction.chain)
    chain.push_back({{"op", part.op}, {"communication", part.communication}, {"count", part.count}, {"ms", part.ms}});
  for (const PredictedCollective& each : prediction.collectives)
    collectives.push_back({{"kind", each.kind},
                           {"axes", each.axes},
                           {"count", each.count},
                           {"ms", each.ms},
                           {"exposed_ms", each.exposed_ms}});
  return {{"step_ms", prediction.step_ms},
          {"compute_ms", prediction.compute_ms},
          {"exposed_ms", prediction.exposed_ms},
          {"idle_ms", prediction.idle_ms},
          {"bound_ms", prediction.bound_ms},
          {"bound", prediction.bound},
          {"computation_ms", prediction.computation_ms},
          {"link_ms", prediction.link_ms},
          {"dependences_ms", prediction.dependences_ms},
          {"bubble", bubble_json(prediction.bubble)},
          {"extrapolated", prediction.extrapolated},
          {"uncertain", prediction.uncertain},
          {"classes", classes},
          {"chain", chain},
          {"collectives", collectives}};
}

}  // namespace tessera::cli

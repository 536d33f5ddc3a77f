#include "tessera/cli/planner_report.h"

namespace tessera::cli {
namespace {

void print_best(const Console& console, const PlannerReport& report) {
  Table table({"", "plan", "step", "compute", "exposed", "idle", "memory"});
  for (size_t i = 0; i < report.best.size(); ++i) {
    const PlannedOption& option = report.best[i];
    const Prediction& time = option.prediction;
    table.add({std::to_string(i + 1), option.text, ms_text(time.step_ms), ms_text(time.compute_ms),
               ms_text(time.exposed_ms), ms_text(time.idle_ms), bytes_text(static_cast<double>(option.peak_bytes))});
  }
  table.print(console);
}

// Which plans' figures follow from smaller programs.
void print_extrapolated(const Console& console, const PlannerReport& report) {
  for (size_t i = 0; i < report.best.size(); ++i)
    if (const PlannedOption& option = report.best[i]; !option.extrapolated.empty())
      console.say(std::to_string(i + 1) + " is extrapolated from " + option.extrapolated +
                  (i == 0 ? "; there was no time for its whole program" : ""));
}

// Why the others are slower, and what would make them the best.
void print_decisions(const Console& console, const PlannerReport& report, PlanObjective objective) {
  for (size_t i = 1; i < report.best.size(); ++i) {
    const PlannedOption& option = report.best[i];
    std::string line = std::to_string(i + 1) + " against 1: " + option.decided;
    if (objective == PlanObjective::time && option.prediction.step_ms > report.best.front().prediction.step_ms)
      line += option.wins.empty() ? "; no speed of a link alone makes it the better one"
                                  : "; the better one " + joined(option.wins, ", or ");
    console.say(line);
  }
}

std::string counts_text(const PlannerReport& report) {
  std::string text = std::to_string(report.candidates) +
                     " candidates: " + std::to_string(report.evaluated - report.unfit) + " simulated";
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) text += ", " + std::to_string(count) + " " + what;
  };
  add(report.unfit, "compiled, but too large");
  add(report.too_large, "whose states alone are too large");
  add(report.too_slow, "whose bound is no better");
  add(report.refused, "that cannot be compiled or simulated");
  add(report.left, "not evaluated");
  add(report.measured, "measured on this machine");
  return text;
}

// What was tried, and what the annotations of the plans that are shown gained.
void print_annotations(const Console& console, const PlannerReport& report, PlanObjective objective) {
  if (report.annotations.empty()) return;
  std::vector<std::string> kept;
  for (const TriedAnnotation& each : report.annotations)
    if (each.kept)
      kept.push_back(each.annotation + " with " + each.plan + " (" +
                     (objective == PlanObjective::memory ? bytes_text(each.gain_bytes) : ms_text(each.gain_ms)) +
                     " less)");
  console.say(std::to_string(report.annotations.size()) + " annotations of parameters tried, " +
              (kept.empty() ? "of which none is better" : std::to_string(kept.size()) + " kept:"));
  for (const std::string& each : kept) console.say("  " + each);
}

double distance_of(const PlannerReport& report) {
  return report.bound_ms > 0 ? report.best.front().prediction.step_ms / report.bound_ms : 0;
}

}  // namespace

void print_planner_report(const Console& console, const PlannerReport& report, const PlannerSettings& settings) {
  const PlannedOption& best = report.best.front();
  console.say("plan for " + counted(settings.devices, "device") + " of " + settings.predict.machine.name + ": " +
              best.text + "; " + ms_text(best.prediction.step_ms) + " a step, " +
              bytes_text(static_cast<double>(best.peak_bytes)) + " on a rank" +
              (report.memory_limit > 0 ? " of " + bytes_text(report.memory_limit) : ""));
  print_best(console, report);
  print_extrapolated(console, report);
  print_decisions(console, report, settings.objective);
  std::string bound = "no order of the best plan's operators beats " + ms_text(best.prediction.bound_ms);
  constexpr double kMostTimes = 1000;  // a bound that is farther away says nothing
  if (const double distance = distance_of(report); distance > 0 && distance < kMostTimes)
    bound += "; no plan beats " + ms_text(report.bound_ms) +
             ", the products at the peak rate of all devices: the best takes " + ratio_text(distance) +
             " times as long";
  console.say(bound);
  console.say(counts_text(report));
  print_annotations(console, report, settings.objective);
  if (report.refused > 0) console.note("the first that cannot be compiled or simulated, " + report.refusal);
  console.say("not searched: " + joined(report.not_searched, "; "));
}

Json planner_json(const PlannerReport& report, const PlannerSettings& settings) {
  Json best = Json::array();
  for (const PlannedOption& option : report.best)
    best.push_back({{"text", option.text},
                    {"plan", Json::parse(option.plan.to_json())},
                    {"step_ms", option.prediction.step_ms},
                    {"compute_ms", option.prediction.compute_ms},
                    {"exposed_ms", option.prediction.exposed_ms},
                    {"idle_ms", option.prediction.idle_ms},
                    {"bound_ms", option.prediction.bound_ms},
                    {"peak_bytes", option.peak_bytes},
                    {"extrapolated", option.extrapolated},
                    {"decided", option.decided},
                    {"wins", option.wins}});
  Json annotations = Json::array();
  for (const TriedAnnotation& each : report.annotations)
    annotations.push_back({{"plan", each.plan},
                           {"annotation", each.annotation},
                           {"gain_ms", each.gain_ms},
                           {"gain_bytes", each.gain_bytes},
                           {"kept", each.kept},
                           {"refused", each.refused}});
  return {{"machine", settings.predict.machine.name},
          {"objective", settings.objective == PlanObjective::memory ? "memory" : "time"},
          {"plan", Json::parse(report.best.front().plan.to_json())},
          {"best", best},
          {"memory_limit", report.memory_limit},
          {"bound_ms", report.bound_ms},
          {"distance", distance_of(report)},
          {"candidates", report.candidates},
          {"evaluated", report.evaluated},
          {"unfit", report.unfit},
          {"too_large", report.too_large},
          {"too_slow", report.too_slow},
          {"refused", report.refused},
          {"left", report.left},
          {"measured", report.measured},
          {"annotations", annotations},
          {"not_searched", report.not_searched}};
}

}  // namespace tessera::cli

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>

#include "tessera/base/bytes_text.h"
#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/plan/annotate.h"
#include "tessera/plan/candidates.h"
#include "tessera/plan/compare.h"
#include "tessera/planner.h"

namespace tessera {
inline namespace v1 {
namespace {

using plan::Candidates;
using plan::PlannedModel;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double limit_of(const PlannerSettings& settings) {
  if (settings.memory_limit > 0) return settings.memory_limit;
  const MachineModel& machine = settings.predict.machine;  // whose ranks share its memory, if they share cores
  return machine.memory / static_cast<double>(machine.cores > 0 ? settings.devices : 1);
}

std::set<std::string> links_of(const Program& program, const MachineModel& machine) {
  std::set<std::string> names;
  if (program.mesh().size() > 1)
    for (const Topology::Axis& axis : machine.topology(program.mesh()).axes)
      for (const LinkLevel& level : axis.levels)
        if (!level.name.empty()) names.insert(level.name);
  return names;
}

double seconds_with(const Program& program, PredictSettings settings, const std::string& link, double factor) {
  if (links_of(program, settings.machine).contains(link)) settings.link_scale[link] = factor;
  return predict(program, settings).step_ms;
}

// The changes of one level of links with which `other` is at least as fast as `best`, simulated with the same change.
std::vector<std::string> wins_of(const Program& best, const Program& other, const PredictSettings& settings) {
  constexpr double kMost = 32;
  std::set<std::string> links = links_of(best, settings.machine);
  links.merge(links_of(other, settings.machine));
  std::vector<std::string> wins;
  for (const std::string& link : links)
    for (const bool faster : {true, false}) {
      const std::optional<double> factor = plan::least_factor(
          [&](double size) {
            const double scale = faster ? size : 1 / size;
            return seconds_with(other, settings, link, scale) <= seconds_with(best, settings, link, scale);
          },
          kMost);
      if (factor && *factor > 1)
        wins.push_back(fmt::format("if '{}' were {:.3g} times as {}", link, *factor, faster ? "fast" : "slow"));
    }
  return wins;
}

// About how long wins_of() takes: ten simulations of both plans for each link and direction.
double seconds_of_wins(const Program& best, const PredictSettings& settings) {
  const auto begin = Clock::now();
  predict(best, settings);
  return 40 * seconds_since(begin) * static_cast<double>(links_of(best, settings.machine).size());
}

std::string decided_of(const Candidates::Kept& best, const Candidates::Kept& other, PlanObjective objective) {
  if (objective == PlanObjective::time || other.outcome.bytes == best.outcome.bytes)
    return plan::difference(best.prediction, other.prediction);
  return bytes_text(other.outcome.bytes - best.outcome.bytes) + " more on a rank";
}

// Seconds of an evaluation beside the search, which says what would fit.
double longest_evaluation(const PlannerSettings& settings) {
  return settings.seconds > 0 ? settings.seconds / 4 : std::numeric_limits<double>::infinity();
}

// If nothing fits: how many devices are enough for the smallest candidate, as text for the message.
std::string fitting_devices(const PlannedModel& model, const PlannerSettings& settings, plan::Space space, double limit,
                            const Candidates& searched) {
  if (settings.memory_limit <= 0 && settings.predict.machine.cores > 0) return "";  // more ranks get less memory each
  if (!settings.fixed.mesh.empty()) return "";
  constexpr int kDoublings = 4;
  for (int i = 0; i < kDoublings; ++i) {
    space.devices *= 2;
    Candidates more(model, settings, space, limit, searched.estimator().for_others());
    more.expect_times_of(searched);
    const size_t smallest = more.smallest(longest_evaluation(settings));
    if (more.seconds_of(smallest) > longest_evaluation(settings)) return "";
    const plan::Outcome outcome = more.evaluate(smallest);
    if (outcome.refused.empty() && outcome.bytes <= limit)
      return fmt::format("; {} devices are enough: {} with {}", space.devices, bytes_text(outcome.bytes),
                         more.choices()[smallest].str());
  }
  return "";
}

[[noreturn]] void refuse(const PlannedModel& model, const PlannerSettings& settings, const plan::Space& space,
                         Candidates& candidates, const plan::Searched& found, double limit) {
  if (found.unfit.empty() && found.too_large.empty()) {
    if (found.refused.empty()) fail("plan", "the search ended before it had evaluated a plan; give it more time");
    fail("plan", "none of {} can be compiled or simulated; the first one, {}, fails: {}",
         counted(candidates.choices().size(), "plan"), candidates.choices()[found.refused.front().candidate].str(),
         found.refused.front().outcome.refused);
  }
  size_t smallest =
      found.unfit.empty() ? candidates.smallest(longest_evaluation(settings)) : found.unfit.front().candidate;
  double least = found.unfit.empty() ? candidates.evaluate(smallest).bytes : found.unfit.front().outcome.bytes;
  if (const size_t other = candidates.smallest(longest_evaluation(settings));
      !found.unfit.empty() && other != smallest && candidates.seconds_of(other) <= longest_evaluation(settings)) {
    const plan::Outcome outcome = candidates.evaluate(other);
    if (outcome.refused.empty() && outcome.bytes < least) {
      least = outcome.bytes;
      smallest = other;
    }
  }
  const std::string peak =
      fmt::format("the smallest peak found is {}, with {}", bytes_text(least), candidates.choices()[smallest].str());
  if (!found.left.empty())
    fail(
        "plan",
        "the search found no plan for {} that fits into the {} of a rank before its time ended: {}, and {} "
        "candidates were not evaluated; give the search more time, or as much memory, more devices, or a smaller batch",
        counted(space.devices, "device"), bytes_text(limit), peak, found.left.size());
  fail("plan",
       "no plan for {} fits into the {} of a rank: {}; give as much memory, more devices, a smaller batch, or "
       "`dtype` bf16{}",
       counted(space.devices, "device"), bytes_text(limit), peak,
       fitting_devices(model, settings, space, limit, candidates));
}

size_t plans_shown(const PlannerSettings& settings) {
  return std::max<size_t>(1, settings.best);
}

// Measures the best plan, until the one that is the best then has been measured. Returns how many it measured.
int64_t measure_best(Candidates& candidates, PlannerSettings& settings) {
  std::set<size_t> measured;
  while (measured.insert(candidates.kept().front().candidate).second)
    if (settings.measure(candidates.kept().front().program, settings.predict)) candidates.predict_again();
  return static_cast<int64_t>(measured.size());
}

std::vector<std::string> not_searched(const PlannerReport& report, size_t plans, bool ended_early) {
  std::vector<std::string> all = {
      fmt::format("layouts of parameters beside those of the {} best plans, and layouts of other tensors", plans),
      "other orders of axes than dp, fsdp, ep, cp, tp",
      "pipelines of stages",
      "states that are streamed from other memory",
  };
  if (report.left > 0)
    all.push_back(fmt::format("{} of {} candidates, for which there was no time", report.left, report.candidates));
  if (ended_early) all.emplace_back("some annotations, for which there was no time");
  return all;
}

// Shares of the time of a search.
struct Shares {
  double until = 1;  ///< of all time, when the phase ends; if nothing has fit by then, it may take twice as long
  double most = 1;   ///< of the phase's time left, for one evaluation
};
constexpr Shares kPresets{0.7, 0.25};  // which sees several candidates
constexpr Shares kAnnotations{1, 1};

plan::SearchLimits limits_of(const PlannerSettings& settings, const Candidates& candidates, double bytes,
                             Clock::time_point begin, Shares shares) {
  plan::SearchLimits limits{plan::objective_of(settings), bytes, nullptr};
  if (settings.seconds <= 0) return limits;
  const auto left = [&settings, &candidates, begin, shares] {
    return (candidates.any_fits() ? shares.until : 2) * settings.seconds - seconds_since(begin);
  };
  limits.is_over = [left] { return left() < 0; };
  limits.has_time = [&candidates, left, shares](size_t candidate) {
    return candidates.seconds_of(candidate) <= shares.most * left();
  };
  return limits;
}

void report_counts(PlannerReport& report, const Candidates& candidates, const plan::Searched& found) {
  const auto size = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  report.evaluated = size(found.fit) + size(found.unfit);
  report.unfit = size(found.unfit);
  report.too_large = size(found.too_large);
  report.too_slow = size(found.too_slow);
  report.refused = size(found.refused);
  report.left = size(found.left);
  report.candidates = report.evaluated + report.too_large + report.too_slow + report.refused + report.left;
  if (!found.refused.empty())
    report.refusal =
        candidates.choices()[found.refused.front().candidate].str() + ": " + found.refused.front().outcome.refused;
}

void report_best(PlannerReport& report, const Candidates& candidates, const PlannerSettings& settings,
                 Clock::time_point begin) {
  const Candidates::Kept& best = candidates.kept().front();
  const double win_seconds = settings.seconds > 0 ? seconds_of_wins(best.program, settings.predict) : 0;
  for (const Candidates::Kept& each : candidates.kept()) {
    if (report.best.size() == plans_shown(settings)) break;
    const plan::Choice& choice = candidates.choices()[each.candidate];
    PlannedOption option{
        choice.over(settings.fixed), choice.str(), each.prediction, static_cast<int64_t>(each.outcome.bytes), {}, {}};
    if (&each != &best) {
      option.decided = decided_of(best, each, settings.objective);
      // They may take half as long as the search.
      if (settings.objective == PlanObjective::time &&
          (settings.seconds == 0 || seconds_since(begin) + win_seconds < 1.5 * settings.seconds))
        option.wins = wins_of(best.program, each.program, settings.predict);
    }
    report.best.push_back(std::move(option));
  }
}

}  // namespace

bool is_searched(PlanDimension dimension) {
  return dimension < PlanDimension::pipelines;
}

PlannerReport find_plan(const Model& model, const PlannerSettings& given) {
  PlannerSettings settings = given;  // what is measured adds to its machine
  if (!settings.predict.topology.empty())
    fail("plan",
         "a topology describes the links of one mesh, but the search tries many; describe the links in the machine "
         "file");
  const auto begin = Clock::now();
  const PlannedModel planned(model, settings);
  const plan::Space space{.devices = settings.devices,
                          .trains = settings.training.has_value(),
                          .has_experts = planned.has_experts(),
                          .context = planned.context(),
                          .batch = planned.batch(),
                          .fixed = settings.fixed};
  const double limit = limit_of(settings);
  Candidates candidates(planned, settings, space, limit, plan::Estimator(planned.facts(), settings.predict.machine));
  const auto within = [&](Shares shares) { return limits_of(settings, candidates, limit, begin, shares); };
  const plan::Searched found = plan::search(candidates.choices().size(), candidates, within(kPresets));
  if (found.fit.empty()) refuse(planned, settings, space, candidates, found, limit);
  plan::Annotated annotated;
  if (settings.annotations)
    annotated = plan::annotate(candidates, planned.kinds(), plans_shown(settings), within(kAnnotations));

  PlannerReport report;
  if (settings.measure) report.measured = measure_best(candidates, settings);
  report.memory_limit = limit;
  report.bound_ms = candidates.estimator().facts().ideal_seconds / static_cast<double>(settings.devices) * 1e3;
  report_counts(report, candidates, found);
  report.annotations = std::move(annotated.tried);
  report.not_searched = not_searched(report, plans_shown(settings), annotated.ended_early);
  report_best(report, candidates, settings, begin);
  return report;
}

}  // namespace v1
}  // namespace tessera

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <set>

#include "tessera/base/bytes_text.h"
#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/plan/annotate.h"
#include "tessera/plan/candidates.h"
#include "tessera/plan/compare.h"
#include "tessera/plan/wins.h"
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
      return fmt::format("; {}{} devices are enough: {}{} with {}",
                         model.extrapolates() ? "by the same estimate, " : "", space.devices,
                         model.extrapolates() ? "about " : "", bytes_text(outcome.bytes),
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
      fmt::format("the smallest peak found is {}{}, with {}{}", model.extrapolates() ? "about " : "", bytes_text(least),
                  candidates.choices()[smallest].str(),
                  model.extrapolates() ? " (estimated from programs of few blocks; without a time limit, whole "
                                         "programs are compiled)"
                                       : "");
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
    if (settings.measure(candidates.kept().front().program.program(), settings.predict)) candidates.predict_again();
  return static_cast<int64_t>(measured.size());
}

std::vector<std::string> not_searched(const PlannerReport& report, size_t plans, bool ended_early, size_t doubts) {
  std::vector<std::string> all = {
      fmt::format("layouts of parameters beside those of the {} best plans, and layouts of other tensors", plans),
      "other orders of axes than dp, fsdp, ep, cp, tp",
      "pipelines of stages",
      "states that are streamed from other memory",
  };
  if (report.left > 0)
    all.push_back(fmt::format("{} of {} candidates, which promised little or for which there was no time", report.left,
                              report.candidates));
  if (ended_early) all.emplace_back("some annotations, for which there was no time");
  if (doubts > 0)
    all.push_back("whole programs of " + counted(doubts, "plan") +
                  " that may be faster, and that few blocks foretell to be a little too large");
  return all;
}

// Shares of the time of a search.
struct Shares {
  double until = 1;  ///< of all time, when the phase ends; if nothing has fit by then, it may take twice as long
  double most = 1;   ///< of the phase's time left, for one evaluation
};
constexpr Shares kPresets{0.7, 0.25};  // which sees several candidates
constexpr Shares kAnnotations{1, 1};
constexpr double kOvertime = 0.25;  // of all time, in addition to it, for looks at the best plan
// Peaks that are foretold to exceed the limit by less are in doubt.
constexpr double kDoubt = 1.15;

// Of all time: to look at the best plan's whole program.
double reserved(const PlannerSettings& settings, const Candidates& candidates) {
  constexpr double kMost = 0.5, kLonger = 1.2;
  return std::min(kMost * settings.seconds, kLonger * candidates.seconds_to_confirm());
}

plan::SearchLimits limits_of(const PlannedModel& model, const PlannerSettings& settings, const Candidates& candidates,
                             double bytes, Clock::time_point begin, Shares shares) {
  plan::SearchLimits limits{plan::objective_of(settings), bytes, nullptr};
  if (settings.seconds <= 0) return limits;
  if (model.extrapolates()) limits.promising = 1;
  const auto left = [&settings, &candidates, begin, shares] {
    return (candidates.any_fits() ? shares.until : 2) * (settings.seconds - reserved(settings, candidates)) -
           seconds_since(begin);
  };
  limits.is_over = [left] { return left() < 0; };
  limits.has_time = [&candidates, left, shares](size_t candidate) {
    return candidates.seconds_of(candidate) <= shares.most * left();
  };
  return limits;
}

// Replaces the outcome of a candidate. One with annotations is not among those that were searched. Returns whether it
// fits.
bool record(plan::Searched& found, size_t candidate, const plan::Outcome& outcome, const plan::SearchLimits& limits) {
  const bool fits = outcome.refused.empty() && (limits.bytes == 0 || outcome.bytes <= limits.bytes);
  const auto is = [&](const plan::Searched::Evaluated& each) { return each.candidate == candidate; };
  if (std::erase_if(found.fit, is) + std::erase_if(found.unfit, is) > 0)
    (fits ? found.fit : outcome.refused.empty() ? found.unfit : found.refused).push_back({candidate, outcome});
  return fits;
}

// Others of the candidate's layout are evaluated once more, corrected, and so is what was dropped for a plan's sake.
void release_alike(plan::Searched& found, const Candidates& candidates, size_t candidate) {
  const auto alike = [&](const plan::Searched::Evaluated& each) {
    const bool is = each.candidate != candidate &&
                    candidates.choices()[each.candidate].layout == candidates.choices()[candidate].layout;
    if (is) found.left.push_back(each.candidate);
    return is;
  };
  std::erase_if(found.fit, alike);
  std::erase_if(found.unfit, alike);
  found.left.insert(found.left.end(), found.too_slow.begin(), found.too_slow.end());
  found.too_slow.clear();
}

// After a look at the whole program of a plan. Returns whether it is not as good as it seemed, so that others are of
// interest again.
bool reconsider(plan::Searched& found, const Candidates& candidates, size_t confirmed, const plan::Outcome& before,
                const plan::Outcome& outcome, const plan::SearchLimits& limits) {
  constexpr double kNear = 0.02;
  const bool fits = record(found, confirmed, outcome, limits);
  const auto cost = [&](const plan::Outcome& of) {
    return limits.objective == plan::Objective::bytes ? of.bytes : of.seconds;
  };
  if (fits && std::abs(cost(outcome) - cost(before)) < kNear * cost(before)) return false;
  release_alike(found, candidates, confirmed);
  return true;
}

// Candidates that were foretold to be a little too large, and that may be faster than the best plan, the fastest first:
// small programs can foretell too much.
std::vector<plan::Searched::Evaluated> doubtful(const plan::Searched& found, const Candidates& candidates,
                                                const plan::SearchLimits& limits) {
  std::vector<std::pair<double, plan::Searched::Evaluated>> all;
  if (candidates.extrapolates() && limits.objective == plan::Objective::seconds)
    for (const plan::Searched::Evaluated& each : found.unfit) {
      if (each.outcome.bytes > kDoubt * limits.bytes || candidates.was_seen(each.candidate)) continue;
      const double expected = candidates.estimator().of(candidates.choices()[each.candidate]).seconds;
      if (!candidates.any_fits() || expected < candidates.kept().front().outcome.seconds)
        all.emplace_back(expected, each);
    }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<plan::Searched::Evaluated> in_order;
  for (auto& [expected, each] : all) in_order.push_back(std::move(each));
  return in_order;
}

// Looks at whole programs that are in doubt while there is time. Returns whether one fits, so that others of its layout
// are of interest again.
bool clear_doubts(plan::Searched& found, Candidates& candidates, const plan::SearchLimits& limits,
                  const std::function<double()>& left) {
  for (const plan::Searched::Evaluated& each : doubtful(found, candidates, limits)) {
    if (candidates.whole_seconds_of(each.candidate) > left()) return false;
    const plan::Outcome outcome = candidates.evaluate_whole(each.candidate, each.outcome);
    if (!record(found, each.candidate, outcome, limits)) continue;
    release_alike(found, candidates, each.candidate);
    return true;
  }
  return false;
}

// Looks at whole programs, until one makes other candidates interesting again (true), or there is no need or time.
// `left`: seconds; `more`: of these, beyond the time of the search, for the best plan.
bool confirm(plan::Searched& found, Candidates& candidates, const plan::SearchLimits& limits,
             const std::function<double()>& left, double more) {
  while (const std::optional<size_t> next = candidates.to_confirm(left(), more)) {
    const size_t candidate = candidates.kept()[*next].candidate;
    const plan::Outcome before = candidates.kept()[*next].outcome, outcome = candidates.confirm(*next, left());
    if (reconsider(found, candidates, candidate, before, outcome, limits) || !candidates.any_fits()) return true;
  }
  return clear_doubts(found, candidates, limits, left);
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

// "20 of 80 blocks, 2 of 8 micro-batches"
std::string extrapolated_from(const Candidates::Kept& kept) {
  const plan::Scale &whole = kept.program.whole(), &seen = kept.simulated;
  std::string text;
  if (seen.blocks != whole.blocks) text = fmt::format("{} of {} blocks", seen.blocks, whole.blocks);
  if (seen.micro_batches != whole.micro_batches)
    text += fmt::format("{}{} of {} micro-batches", text.empty() ? "" : ", ", seen.micro_batches, whole.micro_batches);
  return text;
}

void report_best(PlannerReport& report, const Candidates& candidates, const PlannerSettings& settings,
                 Clock::time_point begin) {
  const Candidates::Kept& best = candidates.kept().front();
  const double win_seconds = settings.seconds > 0 ? plan::seconds_of_wins(candidates, best, settings.predict) : 0;
  for (const Candidates::Kept& each : candidates.kept()) {
    if (report.best.size() == plans_shown(settings)) break;
    const plan::Choice& choice = candidates.choices()[each.candidate];
    PlannedOption option{choice.over(settings.fixed),
                         choice.str(),
                         each.prediction,
                         static_cast<int64_t>(each.outcome.bytes),
                         {},
                         {},
                         {}};
    option.extrapolated = extrapolated_from(each);
    if (&each != &best) {
      option.decided = decided_of(best, each, settings.objective);
      // They may take half as long as the search.
      if (settings.objective == PlanObjective::time &&
          (settings.seconds == 0 || seconds_since(begin) + win_seconds < 1.5 * settings.seconds))
        option.wins = plan::wins_of(candidates, best, each, settings.predict);
    }
    report.best.push_back(std::move(option));
  }
}

}  // namespace

bool is_searched(PlanDimension dimension) {
  return dimension < PlanDimension::pipelines;
}

double usual_search_seconds(const Model& model, const PlannerSettings& settings) {
  constexpr int64_t kFew = 64;
  return settings.devices <= kFew && plan::may_extrapolate(model, settings) ? 10 : 60;
}

PlannerReport find_plan(const Model& model, const PlannerSettings& given) {
  PlannerSettings settings = given;  // what is measured adds to its machine
  if (!settings.predict.topology.empty())
    fail("plan",
         "a topology describes the links of one mesh, but the search tries many; describe the links in the machine "
         "file");
  const auto begin = Clock::now();
  const PlannedModel planned(model, settings);
  settings.predict.fold_similar = planned.extrapolates();
  const plan::Space space{.devices = settings.devices,
                          .trains = settings.training.has_value(),
                          .has_experts = planned.has_experts(),
                          .context = planned.context(),
                          .batch = planned.batch(),
                          .fixed = settings.fixed};
  const double limit = limit_of(settings);
  Candidates candidates(planned, settings, space, limit, plan::Estimator(planned.facts(), settings.predict.machine));
  const auto within = [&](Shares shares) { return limits_of(planned, settings, candidates, limit, begin, shares); };
  plan::Searched found = plan::all_left(candidates.choices().size());
  plan::Annotated annotated;
  const auto left = [&] { return settings.seconds - seconds_since(begin); };
  const auto longer = [&] { return 2 * settings.seconds - seconds_since(begin); };  // while nothing fits
  while (true) {
    plan::search_on(found, candidates, within(kPresets));
    if (!candidates.any_fits()) {
      if (clear_doubts(found, candidates, within(kPresets), longer)) continue;
      refuse(planned, settings, space, candidates, found, limit);
    }
    if (settings.annotations)
      plan::annotate(annotated, candidates, planned.kinds(), plans_shown(settings), within(kAnnotations));
    if (!confirm(found, candidates, within(kPresets), left, kOvertime * settings.seconds)) break;
  }

  PlannerReport report;
  if (settings.measure) report.measured = measure_best(candidates, settings);
  report.memory_limit = limit;
  report.bound_ms = candidates.estimator().facts().ideal_seconds / static_cast<double>(settings.devices) * 1e3;
  report_counts(report, candidates, found);
  report.annotations = std::move(annotated.tried);
  report.not_searched = not_searched(report, plans_shown(settings), annotated.ended_early,
                                     doubtful(found, candidates, within(kPresets)).size());
  report_best(report, candidates, settings, begin);
  return report;
}

}  // namespace v1
}  // namespace tessera

#include "tessera/plan/search.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tessera::plan {
namespace {

std::pair<double, double> key_of(double seconds, double bytes, Objective objective) {
  return objective == Objective::seconds ? std::pair(seconds, bytes) : std::pair(bytes, seconds);
}

// Moves the candidates of `left` for which `holds` is true to `into`.
template <typename Holds>
void move_if(std::vector<size_t>& left, std::vector<size_t>& into, const Holds& holds) {
  const auto stays = std::stable_partition(left.begin(), left.end(), [&](size_t each) { return !holds(each); });
  into.insert(into.end(), stays, left.end());
  left.erase(stays, left.end());
}

// Nullopt if there is time for none, or if none is promising.
std::optional<size_t> cheapest(const std::vector<size_t>& left, Evaluator& evaluator, const SearchLimits& limits,
                               const std::optional<Outcome>& best_outcome) {
  std::optional<size_t> best;
  double least = 0;
  for (const size_t candidate : left) {
    if (limits.has_time && !limits.has_time(candidate)) continue;
    const double expected = evaluator.expected_cost(candidate);
    if (best && expected >= least) continue;
    least = expected;
    best = candidate;
  }
  if (best && best_outcome && limits.promising > 0 &&
      least > limits.promising * key_of(best_outcome->seconds, best_outcome->bytes, limits.objective).first)
    return std::nullopt;
  return best;
}

void sort_by(std::vector<Searched::Evaluated>& all, Objective objective) {
  std::stable_sort(all.begin(), all.end(), [&](const Searched::Evaluated& a, const Searched::Evaluated& b) {
    return is_better(a.outcome, b.outcome, objective);
  });
}

}  // namespace

bool is_better(const Outcome& one, const Outcome& other, Objective objective) {
  return key_of(one.seconds, one.bytes, objective) < key_of(other.seconds, other.bytes, objective);
}

Searched all_left(size_t candidates) {
  Searched found;
  found.left.resize(candidates);
  std::iota(found.left.begin(), found.left.end(), 0);
  return found;
}

Searched search(size_t candidates, Evaluator& evaluator, const SearchLimits& limits) {
  Searched found = all_left(candidates);
  search_on(found, evaluator, limits);
  return found;
}

void search_on(Searched& found, Evaluator& evaluator, const SearchLimits& limits) {
  std::vector<size_t>& left = found.left;
  if (limits.bytes > 0)
    move_if(left, found.too_large, [&](size_t candidate) { return evaluator.bounds(candidate).bytes > limits.bytes; });
  std::optional<Outcome> best;
  for (const Searched::Evaluated& each : found.fit)
    if (!best || is_better(each.outcome, *best, limits.objective)) best = each.outcome;
  while (!left.empty()) {
    if (best)
      move_if(left, found.too_slow, [&](size_t candidate) {
        const Bounds bounds = evaluator.bounds(candidate);
        const Outcome least{bounds.seconds, bounds.bytes, {}};
        return !is_better(least, *best, limits.objective);
      });
    if (left.empty()) break;
    if (limits.is_over && limits.is_over()) break;
    const std::optional<size_t> next = cheapest(left, evaluator, limits, best);
    if (!next) break;
    left.erase(std::find(left.begin(), left.end(), *next));
    Searched::Evaluated made{*next, evaluator.evaluate(*next)};
    if (!made.outcome.refused.empty()) {
      found.refused.push_back(std::move(made));
    } else if (limits.bytes > 0 && made.outcome.bytes > limits.bytes) {
      found.unfit.push_back(std::move(made));
    } else {
      if (!best || is_better(made.outcome, *best, limits.objective)) best = made.outcome;
      found.fit.push_back(std::move(made));
    }
  }
  sort_by(found.fit, limits.objective);
  sort_by(found.unfit, Objective::bytes);
}

}  // namespace tessera::plan

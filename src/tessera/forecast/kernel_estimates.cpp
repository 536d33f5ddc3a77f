#include "tessera/forecast/kernel_estimates.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tessera::forecast {
namespace {

constexpr double kAgree = 0.1;         // two series, as a share of the faster
constexpr double kMostScatter = 0.25;  // of the times of a single series
constexpr double kMostPace = 2;        // of the median of its operator
constexpr size_t kLeastLike = 3;       // kernels of an operator, for such a median
constexpr double kLeastShare = 0.005;  // of a round
constexpr double kFlopsPerByte = 10;   // of cores: what a kernel does in the time in which it moves a byte

double quantile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
}

bool agree(double a, double b) {
  return std::max(a, b) <= (1 + kAgree) * std::min(a, b);
}

// Seconds for the unit of work.
double pace(double seconds, double flops, double bytes) {
  return seconds / std::max({flops, kFlopsPerByte * bytes, 1.0});
}

// Kernels of one operator under equal conditions: "MatMul @2 of 1 threads".
std::string kind_of(std::string_view signature) {
  const size_t condition = signature.rfind(" @");
  return std::string(cost::operator_of(signature)) +
         std::string(condition == std::string_view::npos ? "" : signature.substr(condition));
}

double total_of(const RoundTimes& round) {
  double total = 0;
  for (const std::optional<double>& time : round) total += time.value_or(0);
  return total;
}

// The half of the rounds whose totals are nearest to the median's: a kernel's mean over these is what it takes of a
// usual run, in which a few kernels among many are disturbed.
std::vector<RoundTimes> usual(std::vector<RoundTimes> rounds) {
  std::stable_sort(rounds.begin(), rounds.end(),
                   [](const RoundTimes& a, const RoundTimes& b) { return total_of(a) < total_of(b); });
  const auto quarter = static_cast<std::ptrdiff_t>(rounds.size() / 4);
  return {rounds.begin() + quarter, rounds.end() - quarter};
}

std::vector<double> times_of(size_t step, const std::vector<RoundTimes>& rounds) {
  std::vector<double> times;
  for (const RoundTimes& round : rounds)
    if (round[step]) times.push_back(*round[step]);
  return times;
}

double mean_of(const std::vector<double>& times) {
  return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
}

// A kernel's steps in one series: sums over the steps. All but `seconds` are of medians.
struct Sum {
  double seconds = 0, typical = 0, early = 0, late = 0, scatter = 0;
  double steps = 0;
};

void add_step(Sum& sum, double seconds, std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  const auto median = [](std::vector<double> of) {
    std::sort(of.begin(), of.end());
    return quantile(of, 0.5);
  };
  sum.early += median({times.begin(), middle == times.begin() ? times.end() : middle});
  sum.late += median({middle, times.end()});
  std::sort(times.begin(), times.end());
  const double typical = quantile(times, 0.5);
  sum.seconds += seconds;
  sum.typical += typical;
  sum.scatter += typical > 0 ? (quantile(times, 0.75) - quantile(times, 0.25)) / typical : 0;
  ++sum.steps;
}

}  // namespace

KernelEstimates::KernelEstimates(std::vector<cost::KernelWork> works, const Kernels& known) : works_(std::move(works)) {
  for (const cost::KernelWork& work : works_) {
    if (!is_wanted(work, known)) continue;
    Estimate& estimate = estimates_[work.signature];
    estimate.work = work;
    if (const auto before = known.find(work.signature); before != known.end()) {
      estimate.series = {before->second.seconds};
      estimate.scatter = before->second.scatter;
    }
  }
  for (const auto& [signature, kernel] : known)
    if (!kernel.uncertain) paces_[kind_of(signature)][signature] = pace(kernel.seconds, kernel.flops, kernel.bytes);
}

bool KernelEstimates::is_wanted(const cost::KernelWork& work, const Kernels& known) {
  if (work.signature.empty()) return false;
  const auto found = known.find(work.signature);
  return found == known.end() || found->second.uncertain;
}

void KernelEstimates::add_series(const std::vector<RoundTimes>& rounds) {
  std::map<std::string, Sum> sums;
  double total = 0;
  const std::vector<RoundTimes> counted = usual(rounds);
  for (size_t s = 0; s < works_.size(); ++s) {
    const std::vector<double> times = times_of(s, counted);
    if (times.empty()) continue;
    const double seconds = mean_of(times);
    add_step(sums[works_[s].signature], seconds, times_of(s, rounds));
    total += seconds;
  }
  for (auto& [signature, estimate] : estimates_) {
    const auto of = sums.find(signature);
    if (of == sums.end()) continue;
    const Sum& sum = of->second;
    const double seconds = sum.seconds / sum.steps;
    if (estimate.series.empty() || seconds < estimate.series.front()) estimate.scatter = sum.scatter / sum.steps;
    estimate.series.insert(std::upper_bound(estimate.series.begin(), estimate.series.end(), seconds), seconds);
    estimate.share = total > 0 ? sum.seconds / total : 0;
    estimate.steady =
        agree(sum.early, sum.late) && agree(sum.seconds, sum.typical) && sum.scatter <= kMostScatter * sum.steps;
    paces_[kind_of(signature)][signature] = pace(estimate.series.front(), estimate.work.flops, estimate.work.bytes);
  }
}

bool KernelEstimates::is_slow_for_its_kind(const Estimate& estimate) const {
  const auto kind = paces_.find(kind_of(estimate.work.signature));
  if (kind == paces_.end()) return false;
  std::vector<double> others;
  for (const auto& [signature, pace] : kind->second)
    if (signature != estimate.work.signature) others.push_back(pace);
  if (others.size() < kLeastLike) return false;
  std::sort(others.begin(), others.end());
  return pace(estimate.series.front(), estimate.work.flops, estimate.work.bytes) > kMostPace * quantile(others, 0.5);
}

bool KernelEstimates::is_settled(const Estimate& estimate) const {
  if (estimate.share < kLeastShare) return true;
  if (estimate.series.size() > 1) return agree(estimate.series[0], estimate.series[1]);
  return estimate.steady && !is_slow_for_its_kind(estimate);
}

bool KernelEstimates::is_settled() const {
  return std::all_of(estimates_.begin(), estimates_.end(), [&](const auto& entry) { return is_settled(entry.second); });
}

KernelEstimates::Kernels KernelEstimates::found() const {
  Kernels kernels;
  for (const auto& [signature, estimate] : estimates_) {
    if (estimate.series.empty()) continue;
    const std::vector<double>& series = estimate.series;
    const bool two = series.size() > 1 && agree(series[0], series[1]);
    kernels[signature] = {two ? (series[0] + series[1]) / 2 : series[0], estimate.scatter, estimate.work.flops,
                          estimate.work.bytes, !is_settled(estimate)};
  }
  return kernels;
}

}  // namespace tessera::forecast

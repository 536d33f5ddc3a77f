#include "tessera/plan/extrapolation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

namespace tessera::plan {
namespace {

std::vector<std::pair<int64_t, double>> weights_of(int64_t whole, const Counts& counts) {
  if (whole <= counts.more) return {{whole, 1}};
  const auto between = static_cast<double>(counts.more - counts.less);
  return {{counts.less, static_cast<double>(counts.more - whole) / between},
          {counts.more, static_cast<double>(whole - counts.less) / between}};
}

}  // namespace

std::vector<Sample> samples_of(const Scale& whole, const Counts& blocks, const Counts& micro_batches) {
  std::vector<Sample> samples;
  for (const auto& [parts, of_parts] : weights_of(whole.micro_batches, micro_batches))
    for (const auto& [count, of_count] : weights_of(whole.blocks, blocks))
      samples.push_back({{count, static_cast<int>(parts)}, of_parts * of_count});
  return samples;
}

Prediction sum_of(const std::vector<std::pair<Prediction, double>>& predictions) {
  if (predictions.size() == 1 && predictions.front().second == 1) return predictions.front().first;
  Prediction sum;
  std::map<std::pair<std::string, bool>, std::pair<double, double>> chain;  // count and milliseconds
  for (const auto& [each, weight] : predictions) {
    for (const auto member :
         {&Prediction::step_ms, &Prediction::compute_ms, &Prediction::exposed_ms, &Prediction::idle_ms,
          &Prediction::computation_ms, &Prediction::link_ms, &Prediction::dependences_ms})
      sum.*member += weight * each.*member;
    for (const ChainPart& part : each.chain) {
      auto& [count, ms] = chain[{part.op, part.communication}];
      count += weight * static_cast<double>(part.count);
      ms += weight * part.ms;
    }
    sum.extrapolated = each.extrapolated;
    sum.uncertain = each.uncertain;
  }
  // Larger programs have no less of anything than the largest of these.
  const auto& [last, weight] = predictions.back();
  for (const auto member : {&Prediction::compute_ms, &Prediction::exposed_ms, &Prediction::idle_ms})
    sum.*member = std::max(sum.*member, weight < 1 ? weight * last.*member : last.*member);
  sum.step_ms = sum.compute_ms + sum.exposed_ms + sum.idle_ms;
  const std::pair<double, const char*> bounds[] = {
      {sum.computation_ms, "computation"}, {sum.link_ms, "link"}, {sum.dependences_ms, "chain"}};
  const auto* const largest = std::max_element(std::begin(bounds), std::end(bounds),
                                               [](const auto& a, const auto& b) { return a.first < b.first; });
  sum.bound_ms = largest->first;
  sum.bound = largest->second;
  for (const auto& [key, figures] : chain)
    if (figures.second > 0)
      sum.chain.push_back({key.first, key.second, std::llround(std::max(0.0, figures.first)), figures.second});
  std::stable_sort(sum.chain.begin(), sum.chain.end(),
                   [](const ChainPart& a, const ChainPart& b) { return a.ms > b.ms; });
  return sum;
}

}  // namespace tessera::plan

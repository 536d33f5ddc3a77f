#include "tessera/plan/blocks_alike.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/glob.h"

namespace tessera::plan {
namespace {

// The names or patterns before '=', as in "h.*.w=[tp,-]" and "COPY=SOURCE".
std::string_view before_equals(std::string_view text) {
  return text.substr(0, text.find('='));
}

std::vector<std::string_view> patterns_of(const Plan& plan, const Training* training) {
  std::vector<std::string_view> all;
  for (const auto* texts : {&plan.annotations, &plan.places, &plan.storage})
    for (const Plan::Annotation& each : *texts) all.push_back(before_equals(each.text));
  for (const auto* texts : {&plan.states, &plan.keep_gathered})
    for (const std::string& each : *texts) all.push_back(before_equals(each));
  if (!training) return all;
  for (const auto* texts : {&training->freeze, &training->train, &training->tie, &training->no_decay})
    for (const std::string& each : *texts) all.push_back(before_equals(each));
  for (const auto& [pattern, factor] : training->rate_factors) all.push_back(pattern);
  for (const auto& [pattern, rule] : training->init) all.push_back(pattern);
  return all;
}

}  // namespace

bool treats_blocks_alike(const ModelBlocks& blocks, const Plan& plan, const Training* training) {
  // Other rules name results, or count bytes of the whole.
  const std::string_view rules[] = {"", "none", "selective", "full"};
  if (std::find(std::begin(rules), std::end(rules), plan.recompute) == std::end(rules)) return false;
  const std::vector<std::string_view> patterns = patterns_of(plan, training);
  return std::all_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) {
    return std::all_of(blocks.names.begin(), blocks.names.end(), [&](const std::vector<std::string>& names) {
      const auto matching = std::count_if(names.begin(), names.end(),
                                          [&](const std::string& name) { return glob_matches(pattern, name); });
      return matching == 0 || static_cast<size_t>(matching) == names.size();
    });
  });
}

}  // namespace tessera::plan

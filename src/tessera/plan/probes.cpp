#include "tessera/plan/probes.h"

#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace tessera::plan {
namespace {

double distance_of(int64_t size, int64_t wanted) {
  return std::abs(std::log2(static_cast<double>(size) / static_cast<double>(wanted)));
}

}  // namespace

std::set<size_t> probes(const std::vector<Choice>& choices, int64_t near) {
  using Key = std::tuple<double, bool, int64_t, int, bool, int64_t>;
  std::map<std::tuple<std::string, bool, std::string>, std::pair<Key, size_t>> best;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i];
    const int64_t tp = choice.size_of("tp") * choice.size_of("ep"), cp = choice.size_of("cp");
    // What each recomputation holds, candidates that split batches only say for all.
    const bool recomputes = choice.recompute.empty() || choice.recompute == "full";
    if ((tp > 1 && cp > 1) || (tp * cp > 1 && !recomputes)) continue;
    const Key key(distance_of(tp * cp, tp * cp > 1 ? near : 1), !choice.stores_parameters, choice.size_of("dp"),
                  choice.micro_batches, choice.keeps_gathered, choice.bucket_bytes.value_or(-1));
    const auto [known, added] = best.try_emplace({choice.tensor, cp > 1, choice.recompute}, key, i);
    if (!added && key < known->second.first) known->second = {key, i};
  }
  std::set<size_t> all;
  for (const auto& [family, found] : best) all.insert(found.second);
  return all;
}

}  // namespace tessera::plan

#include "tessera/whatif/sharing.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace tessera::whatif {
namespace {

using Way = std::pair<bool, std::string>;  // whether it enters the rank, and the level

std::vector<Way> ways_of(const Occupation& transfer) {
  std::vector<Way> ways;
  for (const std::string& level : transfer.levels) {
    if (transfer.leaves) ways.emplace_back(false, level);
    if (transfer.enters) ways.emplace_back(true, level);
  }
  return ways;
}

}  // namespace

std::vector<double> lost_to_sharing(const std::vector<Occupation>& transfers) {
  std::vector<double> lost(transfers.size(), 0);
  std::vector<std::vector<Way>> ways;
  std::multimap<double, std::pair<bool, size_t>> changes;  // by time: a transfer begins, or ends
  for (size_t t = 0; t < transfers.size(); ++t) {
    ways.push_back(ways_of(transfers[t]));
    if (transfers[t].end <= transfers[t].begin) continue;
    changes.emplace(transfers[t].begin, std::pair(true, t));
    changes.emplace(transfers[t].end, std::pair(false, t));
  }
  std::set<size_t> under_way;
  double now = 0;
  for (const auto& [time, change] : changes) {
    if (under_way.size() > 1) {
      std::map<Way, int> sharing;
      for (size_t t : under_way)
        for (const Way& way : ways[t]) ++sharing[way];
      for (size_t t : under_way) {
        int most = 1;
        for (const Way& way : ways[t]) most = std::max(most, sharing[way]);
        lost[t] += (time - now) * (1 - 1.0 / most);
      }
    }
    now = time;
    const auto [begins, t] = change;
    if (begins)
      under_way.insert(t);
    else
      under_way.erase(t);
  }
  return lost;
}

}  // namespace tessera::whatif

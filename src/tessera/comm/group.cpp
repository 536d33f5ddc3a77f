#include "tessera/comm/group.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::comm {

int member_of(int rank, std::span<const int> members, int size) {
  for (int member : members) {
    if (member < 0 || member >= size)
      fail("comm", "group {}: rank {} is not in the world of {} ranks", group_text(members), member, size);
    if (std::count(members.begin(), members.end(), member) > 1)
      fail("comm", "group {}: rank {} is named more than once", group_text(members), member);
  }
  auto found = std::find(members.begin(), members.end(), rank);
  if (found == members.end())
    fail("comm", "group {}: rank {} joins it but is not named in it", group_text(members), rank);
  return static_cast<int>(found - members.begin());
}

std::string group_text(std::span<const int> members) {
  return fmt::format("{{{}}}", fmt::join(members, ","));
}

std::string rank_text(std::span<const int> ranks) {
  if (ranks.empty()) return "none";
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ","));
}

}  // namespace tessera::comm

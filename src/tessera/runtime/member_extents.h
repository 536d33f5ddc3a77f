#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/ir/expr.h"

namespace tessera::runtime {

/// What an extent is on each member of this rank's groups. Collectives of thousands of nodes ask for the same few
/// extents, and a group may have thousands of members.
class MemberExtents {
 public:
  /// `axes`: of the group; `members`: its ranks. `at` evaluates the extent on a rank. Extents that depend on sizes are
  /// evaluated each time, since these change.
  std::vector<int64_t> of(const Expr& extent, const std::vector<std::string>& axes, const std::vector<int>& members,
                          const std::function<int64_t(int rank)>& at) {
    if (const auto same = extent.constant()) return std::vector<int64_t>(members.size(), *same);
    if (extent.mentions_sizes()) return evaluated(members, at);
    const auto [known, fresh] = known_.try_emplace({axes, extent.str()});
    if (fresh) known->second = evaluated(members, at);
    return known->second;
  }

 private:
  static std::vector<int64_t> evaluated(const std::vector<int>& members, const std::function<int64_t(int rank)>& at) {
    std::vector<int64_t> extents;
    extents.reserve(members.size());
    for (const int member : members) extents.push_back(at(member));
    return extents;
  }

  std::map<std::pair<std::vector<std::string>, std::string>, std::vector<int64_t>> known_;
};

}  // namespace tessera::runtime

#include "tessera/bind/groups.h"

#include <algorithm>

namespace tessera::bind {

bool is_read_before(const NodeGroup& group, size_t operand, size_t result) {
  const size_t maker = result == 0 ? group.followers.size() : result - 1;
  return std::none_of(group.followers.begin() + static_cast<std::ptrdiff_t>(maker), group.followers.end(),
                      [&](const kernels::Follower& later) {
                        return std::count(later.operands.begin(), later.operands.end(), static_cast<int>(operand)) > 0;
                      });
}

}  // namespace tessera::bind

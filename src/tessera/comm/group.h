#pragma once

#include <span>
#include <string>

namespace tessera::comm {

/// Rank `rank`'s index in the group `members` of a world of `size` ranks. Throws a user error for a group that names a
/// rank twice, names one that is not in the world, or does not name the rank itself.
int member_of(int rank, std::span<const int> members, int size);

/// "{0,2,4}": a group in messages.
std::string group_text(std::span<const int> members);

/// "rank 1", "ranks 0,2", "none".
std::string rank_text(std::span<const int> ranks);

}  // namespace tessera::comm

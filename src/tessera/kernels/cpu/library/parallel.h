#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/base/function_ref.h"
#include "tessera/kernels/cpu/library/dispatch.h"

/// Work shared out among threads. Bodies are called by reference, so that this code is compiled once.
namespace tessera::kernels {

/// The most members of a team that shares out items.
constexpr int64_t most_members = 512;

/// Calls `body(item, member)` for each item of [0, count). Each member of the team takes a range of its own in order,
/// one item at a time, and then, if `all_take_all`, what others have not begun.
void share_out(int64_t count, int64_t team, bool all_take_all, FunctionRef<void(int64_t, int64_t)> body);

/// Calls `body(begin, end)` on ranges that cover [0, count), one per thread of the team that `work` (elements touched)
/// is worth. Beside other work there are more ranges, so that a thread that does not get its core takes fewer of them.
/// Ranges begin at multiples of 64, if there are as many for each. `body` must not throw.
void for_ranges(int64_t count, int64_t work, int threads, FunctionRef<void(int64_t, int64_t)> body);

/// Calls `body(item, member)` for each item of [0, count), items of equal work, which lie in memory one after the
/// other. Each member of the team that `work` (elements touched) is worth takes a range of its own in order, so that it
/// streams through memory, and then what the others have not begun. Members are numbered from 0, and do one item at a
/// time. `body` must not throw.
void for_stream(int64_t count, int64_t work, int threads, FunctionRef<void(int64_t, int64_t)> body);

}  // namespace tessera::kernels

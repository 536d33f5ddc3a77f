#pragma once

#include "tessera/proof/report.h"
#include "tessera/proof/statement.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::proof {

/// Follows all ranks through their communications, stopping each where it must wait for others, and reports the first
/// clash: members of a group that reach different collectives or contradict each other, a receive that gets an
/// unexpected message, a message that is never received, or ranks that wait in a cycle (reports the shortest) or for a
/// rank that has ended.
///
/// Collectives wait for all members, receives for their message; sends do not wait. Since no rank chooses what it does
/// next, every order of events ends in the same state, so one walk is a proof for all.
///
/// Example, ranks 0 and 1, groups a and b of both: rank 0 does a then b, rank 1 b then a. 0 waits at a for 1, 1 waits
/// at b for 0: a cycle of two nodes.
///
/// `communications`: by program. Cost: one step per rank and communication; statements are bound and compared once for
/// ranks with equal programs and members.
void check_order(const runtime::RankPrograms& programs, const std::vector<std::vector<Communication>>& communications,
                 Report& report);

}  // namespace tessera::proof

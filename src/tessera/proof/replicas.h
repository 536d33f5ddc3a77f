#pragma once

#include <vector>

#include "tessera/proof/report.h"
#include "tessera/proof/statement.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::proof {

/// Ranks that give out the same part of an output have the same of it, and so it is with what states become.
///
/// Nothing that values say of themselves is used. What is known is what ranks begin with: an input is the same on all
/// ranks that take the same part of it, and a state on all that hold the same part (where no layout says that, those
/// whose data are equal). From there on, every value on every rank gets a number (proof/number.h) of how it is made. A
/// collective's result is made of what all members give: an all-reduce and an all-gather give all of them the same, a
/// reduce-scatter gives each another block of the same, a broadcast what the root has; a message is what was sent.
///
/// Example: p = MatMul (x, w) where ranks 0 and 1 hold other data of w is another value on each. So is Relu (p), and as
/// an output it is a finding (rule "output") that names w and the MatMul. AllReduce (p) is the same on both.
///
/// `communications`: of each program, as communications_of says. Ranks must be known to get to their ends.
void check_replicas(const runtime::RankPrograms& programs,
                    const std::vector<std::vector<Communication>>& communications, Report& report);

}  // namespace tessera::proof

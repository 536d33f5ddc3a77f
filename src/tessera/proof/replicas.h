#pragma once

#include <vector>

#include "tessera/proof/report.h"
#include "tessera/proof/statement.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::proof {

/// Ranks that give out the same part of an output have the same of it, and so it is with what states become; as it is
/// derived from nodes (proof/derivation.h). Else a finding of rule "output", which says where the ranks part.
///
/// Example: as an output, Relu (MatMul (x, w)) with other data of w on each rank is a finding that names w and the
/// MatMul.
///
/// `communications`: of each program, as communications_of says. Ranks must be known to get to their ends.
void check_replicas(const runtime::RankPrograms& programs,
                    const std::vector<std::vector<Communication>>& communications, Report& report);

}  // namespace tessera::proof

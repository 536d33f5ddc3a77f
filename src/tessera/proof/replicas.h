#pragma once

#include <vector>

#include "tessera/proof/report.h"
#include "tessera/proof/statement.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::proof {

/// Checks that ranks which give the same part of an output, or of a state's next value, have equal data there, as
/// derived from nodes (proof/derivation.h). If not, a finding of rule "output" says where the ranks diverge.
///
/// Example: the output Relu (MatMul (x, w)) with different data of w on each rank is a finding that names w and the
/// MatMul.
///
/// `communications`: of each program, from communications_of. All ranks must be known to reach their ends.
void check_replicas(const runtime::RankPrograms& programs,
                    const std::vector<std::vector<Communication>>& communications, Report& report);

}  // namespace tessera::proof

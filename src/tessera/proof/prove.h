#pragma once

#include "tessera/proof/report.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::proof {

/// Proves, without running anything, that the programs of all ranks fit together; Finding::rule lists the rules. Ranks
/// that run the same model are followed together as far as they are alike. Reports the first clash of each kind of
/// proof, since later ones usually follow from it.
Report prove(const runtime::RankPrograms& programs);

}  // namespace tessera::proof

#pragma once

#include "tessera/proof/report.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::proof {

/// Proves, without running anything, that the programs of all ranks fit together; Finding::rule lists the rules. Ranks
/// with the same model are checked together where they are alike. Reports the first finding of each kind of proof,
/// since later ones usually follow from it.
Report prove(const runtime::RankPrograms& programs);

}  // namespace tessera::proof

#pragma once

#include <string>

#include "tessera/sim/predict.h"
#include "tessera/what_if.h"

namespace tessera::whatif {

/// Where a workload communicates.
struct Links {
  const Mesh& mesh;
  const Topology& topology;  ///< empty: unknown
  std::string engine = "threads";
};

/// Changes what classes of ranks run, and how long it takes. Throws a user error (stage "whatif") that names `source`
/// and what there is, for a pattern or a link that matches nothing.
void apply(const WhatIfChanges& changes, sim::Workload& workload, const Links& links, const std::string& source);

}  // namespace tessera::whatif

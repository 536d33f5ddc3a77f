#pragma once

#include "tessera/runtime/dry_run.h"
#include "tessera/what_if.h"
#include "tessera/whatif/trace.h"

/// Answers of what_if() (include/tessera/what_if.h).
namespace tessera::whatif {

WhatIf answer(const RecordedTrace& trace, const WhatIfChanges& changes);

/// `machine`: null: all collectives of `other` must have been recorded. `topology`: of its mesh.
WhatIf answer(const RecordedTrace& trace, const WhatIfChanges& changes, const runtime::DryRun& other,
              const std::optional<MachineModel>& machine, const Topology& topology);

}  // namespace tessera::whatif

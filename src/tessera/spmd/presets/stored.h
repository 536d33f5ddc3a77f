#pragma once

#include "tessera/spmd/layout/storage.h"
#include "tessera/spmd/presets/presets.h"

namespace tessera::spmd {

/// How presets store states, where `ordered` does not say (PresetRequest, Stores). A state that a graph steps is an
/// optimizer's if none of the outputs depends on it: it serves its own next value and other states'.
Storage stored_by_presets(const Graph& graph, const std::vector<PresetRequest>& requests, const Storage& ordered);

/// Lets what presets store be split, too, over the axes that presets lay out its uses over: a weight that is computed
/// with as [-, tp] and stored over dp becomes [dp, tp], and so does what the optimizer keeps of it. Annotations lay out
/// parameters; of `storage`, only what is not in `ordered` changes.
void store_as_computed(Storage& storage, const Graph& graph, const std::vector<Annotation>& annotations,
                       const Storage& ordered);

}  // namespace tessera::spmd

#pragma once

#include "tessera/spmd/layout/storage.h"
#include "tessera/spmd/presets/presets.h"

namespace tessera::spmd {

/// How presets store states that are not in `ordered` (PresetRequest, Stores). A state that the graph updates belongs
/// to an optimizer if no output depends on it: it serves only its own next value and those of other states.
Storage stored_by_presets(const Graph& graph, const std::vector<PresetRequest>& requests, const Storage& ordered);

/// Also splits the states that presets store over the axes by which presets split their uses: a weight that is used as
/// [-, tp] and stored over dp becomes [dp, tp], and so do its optimizer states. `annotations` has the layouts of
/// parameters; of `storage`, only what is not in `ordered` changes.
void store_as_computed(Storage& storage, const Graph& graph, const std::vector<Annotation>& annotations,
                       const Storage& ordered);

}  // namespace tessera::spmd

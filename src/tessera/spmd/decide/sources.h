#pragma once

#include <map>
#include <vector>

#include "tessera/spmd/decide/decide.h"

namespace tessera::spmd {

/// How inputs, states and constants are stored. `wants`: by source, the layouts in which nodes use it. One that is
/// annotated is stored as its annotation says, others as all uses want them, as far as these agree; `storage` overrides
/// both. A state that the graph steps lives where its next value is made. Throws a user error (stage "store") if a
/// state that lives at a place would be split over that place's axis.
std::map<const Value*, Sharding> stored_sources(const Graph& graph, const Layout& layout,
                                                const std::map<const Value*, std::vector<Sharding>>& wants,
                                                const Storage& storage, const Mesh& mesh);

}  // namespace tessera::spmd

#pragma once

#include <string>
#include <vector>

#include "tessera/spmd/decide/decide.h"

namespace tessera::spmd {

/// Warns about each axis of the mesh that has more ranks than the split parts have units, so that some ranks idle in
/// all operators, or in some that count: 12 heads over tp=16, a batch of 2 over dp=4. A warning names these ranks, the
/// operator and the fix. Symbols have the sizes of `hints`.
std::vector<std::string> idle_ranks(const Layout& layout, const Decisions& decisions, const Mesh& mesh,
                                    const Hints& hints);

}  // namespace tessera::spmd

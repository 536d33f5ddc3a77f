#pragma once

#include <string>
#include <vector>

#include "tessera/spmd/decide/decide.h"

namespace tessera::spmd {

/// Warns about each mesh axis with more ranks than the dimensions that it splits have elements, if ranks are idle in
/// all operators or in ones that matter: 12 heads over tp=16, a batch of 2 over dp=4. A warning names these ranks, the
/// operator and the fix. Symbols have the sizes of `hints`.
std::vector<std::string> idle_ranks(const Layout& layout, const Decisions& decisions, const Mesh& mesh,
                                    const Hints& hints);

}  // namespace tessera::spmd

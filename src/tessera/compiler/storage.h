#pragma once

#include <string>
#include <vector>

#include "tessera/compiler/requests.h"
#include "tessera/compiler/shared_states.h"

namespace tessera::compiler {

/// The storage of states that the caller or the program that shares them (`shared`; may be null) decides; the first
/// request for a state counts. Throws a user error (stage "store") for a request that matches no state, or none with as
/// many dimensions; with `shared`, it may match states of that program only.
spmd::Storage read_storage(const Graph& graph, const std::vector<AnnotationRequest>& requests, const Mesh& mesh,
                           const SharedStates* shared);

/// The storage of the states that each use fetches anew, without those that match `keep_gathered`, whose uses share one
/// gathered form. Throws a user error (stage "store") for a pattern that matches no stored state.
spmd::Storage stored_anew(const spmd::Storage& storage, const std::vector<std::string>& keep_gathered);

}  // namespace tessera::compiler

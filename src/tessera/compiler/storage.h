#pragma once

#include <string>
#include <vector>

#include "tessera/compiler/requests.h"
#include "tessera/compiler/shared_states.h"

namespace tessera::compiler {

/// How states are stored, where the program that shares them or the caller has said so; the first request for a state
/// counts. Throws a user error (stage "store") for one that matches no state, or none of its rank; with `shared` (null:
/// no program shares states), a request may be about states of the other program only.
spmd::Storage read_storage(const Graph& graph, const std::vector<AnnotationRequest>& requests, const Mesh& mesh,
                           const SharedStates* shared);

/// The storage of the states that each use fetches anew: without those that match `keep_gathered`, of which all uses
/// share one gathering. Throws a user error (stage "store") for a pattern that matches no stored state.
spmd::Storage stored_anew(const spmd::Storage& storage, const std::vector<std::string>& keep_gathered);

}  // namespace tessera::compiler

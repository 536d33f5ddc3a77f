#pragma once

#include <string>

#include "tessera/compiler/compile.h"
#include "tessera/mesh/mesh.h"

namespace tessera::compiler {

/// Whether a mesh's text leaves sizes to be said later: "dp=2,tp=?".
bool has_open_sizes(const std::string& mesh);

/// The mesh with that size for each that is open. A user error for what is no mesh otherwise.
Mesh close_sizes(const std::string& mesh, int64_t size);

/// The smallest size of at least 2 on which the mesh has all these places; 2 if it has them on none.
int64_t size_with_places(const std::string& mesh, const std::vector<PlaceRequest>& places);

}  // namespace tessera::compiler

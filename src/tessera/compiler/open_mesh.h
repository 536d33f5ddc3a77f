#pragma once

#include <string>

#include "tessera/compiler/compile.h"
#include "tessera/mesh/mesh.h"

namespace tessera::compiler {

/// Whether the text of a mesh leaves sizes open: "dp=2,tp=?".
bool has_open_sizes(const std::string& mesh);

/// The mesh with that size for each open one. Throws a user error if the text is otherwise not a mesh.
Mesh close_sizes(const std::string& mesh, int64_t size);

/// The smallest size, at least 2, for which the mesh has all these places; 2 if there is none.
int64_t size_with_places(const std::string& mesh, const std::vector<PlaceRequest>& places);

}  // namespace tessera::compiler

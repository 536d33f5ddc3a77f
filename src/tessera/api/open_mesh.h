#pragma once

#include <string>

#include "tessera/mesh/mesh.h"

namespace tessera::api {

/// Whether a mesh's text leaves sizes to be said later: "dp=2,tp=?".
bool has_open_sizes(const std::string& mesh);

/// The mesh with that size for each that is open. A user error for what is no mesh otherwise.
Mesh close_sizes(const std::string& mesh, int64_t size);

}  // namespace tessera::api

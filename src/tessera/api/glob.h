#pragma once

#include <string>
#include <string_view>

#include "tessera/ir/graph.h"

namespace tessera::api {

/// Whether `name` matches `pattern`, in which `*` stands for any characters (none included).
bool glob_matches(std::string_view pattern, std::string_view name);

/// "; did you mean 'x'?" for the name of the graph that is nearest to `wanted` by edits, or "" if none is near.
std::string nearest_name(const Graph& graph, std::string_view wanted);

}  // namespace tessera::api

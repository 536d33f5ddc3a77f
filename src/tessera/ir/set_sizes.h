#pragma once

#include <map>
#include <string>

#include "tessera/ir/graph.h"

namespace tessera {

/// Gives symbols of these names these sizes, in the types of all values.
void set_sizes(Graph& graph, const std::map<std::string, int64_t, std::less<>>& sizes);

}  // namespace tessera

#pragma once

#include <map>
#include <string_view>

#include "tessera/ir/graph.h"

namespace tessera {

/// Appends a copy of all nodes of `from` to `to`. `known` maps values of the first to the second: its inputs before the
/// call, all of its values after it. States are shared by name; other values get `suffix` after theirs.
void append_copy(Graph& to, const Graph& from, std::map<const Value*, Value*>& known, std::string_view suffix);

}  // namespace tessera

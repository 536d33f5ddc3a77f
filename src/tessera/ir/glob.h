#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

/// Whether `name` matches `pattern`, in which `*` stands for any characters (none included).
bool glob_matches(std::string_view pattern, std::string_view name);

/// "; did you mean 'x', 'y' or 'z'?" for those of `names`, up to three, that are nearest to `wanted` by edits, or that
/// hold something near it; `*` in `wanted` stands for any characters. "" if none is near. Where two are as near, the
/// first comes first.
std::string nearest_names(const std::vector<std::string_view>& names, std::string_view wanted);

/// The names that annotations may speak of, parameters, inputs and outputs first.
std::vector<std::string_view> tensor_names(const Graph& graph);

}  // namespace tessera

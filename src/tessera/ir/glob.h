#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

/// Whether `name` matches `pattern`, in which `*` stands for any characters (none included).
bool glob_matches(std::string_view pattern, std::string_view name);

/// "; did you mean 'x', 'y' or 'z'?" with up to three of `names` that are nearest to `wanted` by edit distance, or that
/// contain something near it; `*` in `wanted` stands for any characters. "" if none is near. Ties keep the given order.
std::string nearest_names(const std::vector<std::string_view>& names, std::string_view wanted);

/// The names that annotations may use; parameters, inputs and outputs come first.
std::vector<std::string_view> tensor_names(const Graph& graph);

}  // namespace tessera

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/mesh/sharding.h"

namespace tessera {

/// Reads "tp" or "tp:(1)2", as AxisRef::str prints it. Throws a user error if the mesh has no such axis.
AxisRef parse_axis(std::string_view text, const Mesh& mesh);
/// Whether parse_axis could read the text on some mesh.
bool reads_as_axis(std::string_view text);

std::vector<AxisRef> parse_axes(const std::vector<std::string>& texts, const Mesh& mesh);

/// The ranks that differ from `rank` only along the given axes, row-major in the order of the axes (the first varies
/// slowest). Example on dp=2,tp=2: group_of(3, {tp}) is 2 3, group_of(3, {dp}) is 1 3.
std::vector<int> group_of(int64_t rank, const std::vector<AxisRef>& axes, const Mesh& mesh);

}  // namespace tessera

#pragma once

#include <string>
#include <vector>

#include "tessera/mesh/sharding.h"

namespace tessera {

/// The axis, or the part of one up to some digit, along which the nearest members of a group lie: "tp" for tp and for
/// dp,tp on dp=8,tp=8; "dp" for dp and its minor sub-axes, "dp:(1)2" for the major one of two. Groups with the same one
/// have nearest links in common. Empty for a group of one rank.
std::string nearest_axis(const std::vector<AxisRef>& axes, const Mesh& mesh);

}  // namespace tessera

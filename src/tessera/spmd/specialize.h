#pragma once

#include "tessera/spmd/program.h"

namespace tessera::spmd {

/// The axes along which values of a program are placed, each once, in order.
std::vector<AxisRef> placed_axes(const Program& program);

/// Where a node runs, if its results say it: where they live; of communication, along the axes of its group everywhere.
std::optional<std::vector<PlacedAxis>> place_of(const Program& program, const Node& node);

/// What the rank at `coordinates` runs of a program: the nodes whose results live there, the communication that its
/// groups take part in, and of all else only what these use. Extents and offsets stay expressions over axis indices, so
/// ranks with the same indices along placed_axes run the same. Records of reshards are not copied.
///
/// Example, h at(pp=0), y = Relu (h') at(pp=1), h' = Permute (h) from 0 to 1: rank pp=0 makes h and runs the Permute,
/// whose result nobody uses; rank pp=1 runs the Permute without an operand, then Relu.
Program specialize(const Program& program, const std::vector<int64_t>& coordinates);

}  // namespace tessera::spmd

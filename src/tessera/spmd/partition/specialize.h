#pragma once

#include <functional>
#include <vector>

#include "tessera/spmd/program.h"

namespace tessera::spmd {

/// The axes along which values of a program are placed, each once, in order.
std::vector<AxisRef> placed_axes(const Program& program);

/// The place where a node runs, if its results determine it: the place where they live. A communication runs everywhere
/// along the axes of its group.
std::optional<std::vector<PlacedAxis>> place_of(const Program& program, const Node& node);

/// The program of the rank at `coordinates`: the nodes whose results live there, the communication that its groups take
/// part in, and everything that these use. Extents and offsets stay expressions over axis indices, so ranks with the
/// same indices along placed_axes have the same program. Records of reshards are not copied.
///
/// Example, h at(pp=0), y = Relu (h') at(pp=1), h' = Permute (h) from 0 to 1: rank pp=0 makes h and runs the Permute,
/// whose result nobody uses; rank pp=1 runs the Permute without an operand, then Relu.
Program specialize(const Program& program, const std::vector<int64_t>& coordinates);
/// The same for several ranks, one after the other. `program` must outlive the result.
std::function<Program(const std::vector<int64_t>& coordinates)> specializer(const Program& program);

}  // namespace tessera::spmd

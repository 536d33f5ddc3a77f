#pragma once

#include <optional>

#include "tessera/spmd/program.h"

namespace tessera::spmd {

/// Which inputs, outputs and states of a program are whole.
struct WholeEdge {
  bool states = true;
  bool ports = false;  ///< inputs and outputs
};

/// The same program with whole inputs, outputs or states: each rank first slices out its part, and outputs are gathered
/// last. The result is a model that every rank can run. Example, w = [-, 8{tp}]: the state w is [4, 8] on every rank,
/// and w.shard = Slice (w, …) of shape [4, 4] replaces it. Next values of whole states are gathered.
Program with_whole_edge(const Program& program, const WholeEdge& edge);

/// The inverse for states and inputs: those of which a rank uses only slices become these slices, so that it loads only
/// them and updates them without gathering their next values. Those that are used whole, or are updated in another way,
/// stay whole. `rank`: the rank that the program is bound to.
///
/// Throws a user error (stage "program") that names the first slice that does not match its result's placement.
void take_slices_only(Program& program, std::optional<int64_t> rank = std::nullopt);

}  // namespace tessera::spmd

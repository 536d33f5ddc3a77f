#pragma once

#include <optional>

#include "tessera/spmd/program.h"

namespace tessera::spmd {

/// Which tensors at a program's edge are whole.
struct WholeEdge {
  bool states = true;
  bool ports = false;  ///< inputs and outputs
};

/// The same program on whole tensors at its edge: each rank slices its part of them out first, and outputs are gathered
/// last. A model that every rank can run, whatever it holds. Example, w = [-, 8{tp}]: the state w is [4, 8] on every
/// rank, and w.shard = Slice (w, …) of [4, 4] stands where w stood. Next values of whole states are gathered.
Program with_whole_edge(const Program& program, const WholeEdge& edge);

/// The inverse for what a rank takes in: states and inputs of which it uses slices only become those slices, so that it
/// loads no more than these, and steps them without gathering their next values. What is used whole, or steps in
/// another way, stays whole. `rank`: the program is bound to that one.
///
/// Slices are trusted no more than any other node: throws a user error (stage "program") that names the first one that
/// does not cut as its result's placement says.
void take_slices_only(Program& program, std::optional<int64_t> rank = std::nullopt);

}  // namespace tessera::spmd

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/ir/collective.h"
#include "tessera/mesh/sharding.h"
#include "tessera/spmd/program.h"

namespace tessera::spmd {

enum class ReshardKind {
  slice,
  all_gather,
  all_to_all,
  all_reduce,
  reduce_scatter,
  // From and to a place (Sharding::at), along one axis. `forget` is free: ranks outside the place drop their copies.
  forget,
  broadcast,
  reduce,
  gather,
  scatter,
  permute,
  reorder,  ///< ranks exchange their pieces, so that other axes split parts, or the same ones in another order
};

/// What ranks do together in such a step; nullopt where each has what it needs.
std::optional<Collective> collective_of(ReshardKind kind);
/// The step that consists of it; nullopt if there is none.
std::optional<ReshardKind> reshard_by(Collective collective);

/// One step of a layout change. `before` and `after` have the same parts.
struct ReshardStep {
  ReshardKind kind = ReshardKind::slice;
  std::vector<AxisRef> axes;  ///< the group, major first
  Reduction reduction = Reduction::sum;
  int dim = 0,
      part = 0;  ///< loses axes (all_gather, all_to_all), gains them (slice, reduce_scatter), or both (reorder)
  int to_dim = 0, to_part = 0;  ///< all_to_all: gains them
  int64_t root = 0;             ///< the place: where the tensor lives before (broadcast, scatter, permute) or after
  int64_t to_root = 0;          ///< permute: the place after
  Sharding before, after;

  std::string str(const Mesh& mesh) const;  ///< "AllGather tp"
};

/// Steps that change `from` into `to` (for one tensor). Always succeeds: first slice (free), then reduce partial axes
/// (by reduce-scatter if the target splits a dimension over them, else by all-reduce), then move axes between
/// dimensions by all-to-all, reorder the axes of a part where that moves less than a gather, and gather the others. If
/// these are several steps, a search (spmd/reshard/search.h) looks for others that move less. If parts do not line up,
/// the dimension is gathered whole and sliced anew. Example: [8{tp}, -] → [-, 6{tp}] is one all-to-all. `to` may not be
/// partial where `from` is not.
///
/// Pieces change ranks by one permutation where all have the same size: [8{x}, 8{y}] → [8{y}, 8{x}] over x=2,y=2; and
/// [8{tp}] partial(sum:dp) → [8{dp}] is a reduce-scatter to [8{tp,dp}], a permutation to [8{dp,tp}] and a gather over
/// tp. One all-reduce, a gather and a slice move twice that.
///
/// A tensor reaches a place when other ranks drop their replicas (free), by Reduce from partial, by Gather from split,
/// or by Permute from another place; it leaves a place by Broadcast, Scatter or Permute. Between places only shards
/// move, if there are some:
/// [-] at(pp=0) → [8{tp}] at(pp=1) slices first, [8{tp}] at(pp=0) → [-] at(pp=1) gathers last.
///
/// Where elements are less than a byte, steps cut between bytes only; without a type, elements are whole bytes.
std::vector<ReshardStep> plan_reshard(const Sharding& from, const Sharding& to, DType dtype = DType::undefined);

/// By member of the group, the one that gets its piece, in a permute or reorder; -1: none.
std::vector<int64_t> targets_of(const ReshardStep& step);

/// Bytes that one rank receives in a step (rank 0 in uneven splits), for a tensor of that type.
Expr bytes_received(const ReshardStep& step, DType dtype, const Mesh& mesh);

/// Adds the step's nodes to the program, at its end or before `before`: the result of the step for the local value
/// `value`.
Value* emit_reshard(Program& program, Value* value, const ReshardStep& step, const TensorType& global,
                    const std::string& global_name, const Node* before = nullptr);

}  // namespace tessera::spmd

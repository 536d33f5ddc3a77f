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
  // From and to a place (Sharding::at), along one axis. `forget` is free: others than the place let go of what they
  // have.
  forget,
  broadcast,
  reduce,
  gather,
  scatter,
  permute
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
  int dim = 0, part = 0;        ///< whose axes go (all_gather, all_to_all) or come (slice, reduce_scatter)
  int to_dim = 0, to_part = 0;  ///< all_to_all: where they come
  int64_t root = 0;             ///< the place: where the tensor lives before (broadcast, scatter, permute) or after
  int64_t to_root = 0;          ///< permute: the place after
  Sharding before, after;

  std::string str(const Mesh& mesh) const;  ///< "AllGather tp"
};

/// Steps that change `from` into `to` (of one tensor). Always succeeds: slices are taken first (free), then partial
/// axes are reduced (onto a dimension where the target splits it there, else everywhere), axes that move between
/// dimensions go by all-to-all, others are gathered; where parts do not line up the dimension is gathered whole and
/// sliced anew. Example: [8{tp}, -] → [-, 6{tp}] is one all-to-all. `to` may not be partial where `from` is not.
///
/// A place is reached by letting go of a replica (free), by Reduce from partial, by Gather from split, by Permute from
/// another place; it is left by Broadcast, Scatter, Permute. What moves between places is a shard, where there are
/// some:
/// [-] at(pp=0) → [8{tp}] at(pp=1) slices first, [8{tp}] at(pp=0) → [-] at(pp=1) gathers last.
std::vector<ReshardStep> plan_reshard(const Sharding& from, const Sharding& to);

/// Bytes that one rank receives in a step (rank 0 of uneven splits), of a tensor of that type.
Expr bytes_received(const ReshardStep& step, DType dtype, const Mesh& mesh);

/// Adds the step's nodes to the program, at its end or before `before`: the result of the step for the local value
/// `value`.
Value* emit_reshard(Program& program, Value* value, const ReshardStep& step, const TensorType& global,
                    const std::string& global_name, const Node* before = nullptr);

}  // namespace tessera::spmd

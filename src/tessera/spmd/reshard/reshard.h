#pragma once

#include <memory>
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

/// The collective of such a step; nullopt if it needs no communication.
std::optional<Collective> collective_of(ReshardKind kind);
/// The step that consists of this collective; nullopt if there is none.
std::optional<ReshardKind> reshard_by(Collective collective);

/// One step of a layout change. `before` and `after` have the same parts.
struct ReshardStep {
  ReshardKind kind = ReshardKind::slice;
  std::vector<AxisRef> axes;  ///< the group, major first
  Reduction reduction = Reduction::sum;
  int dim = 0,
      part =
          0;  ///< this part loses axes (all_gather, all_to_all), gains them (slice, reduce_scatter), or both (reorder)
  int to_dim = 0, to_part = 0;  ///< all_to_all: this part gains them
  int64_t root = 0;             ///< the place: where the tensor lives before (broadcast, scatter, permute) or after
  int64_t to_root = 0;          ///< permute: the place after
  Sharding before, after;

  std::string str(const Mesh& mesh) const;  ///< "AllGather tp"
};

/// The steps that change one tensor's layout from `from` to `to`: the sequence that moves the fewest bytes, in as few
/// communications as possible (search.h). Always succeeds: plain steps (plain.h) are used where the search does not
/// apply (while the parts of a dimension do not line up, places differ, or several kinds of reduction are left), and
/// all the way if too many layouts lie between. Example: [8{tp}, -] → [-, 6{tp}] is one all-to-all. `to` may not be
/// partial where `from` is not.
///
/// Pieces change ranks by one permutation where all have the same size: [8{x}, 8{y}] → [8{y}, 8{x}] over x=2,y=2; and
/// [8{tp}] partial(sum:dp) → [8{dp}] is a reduce-scatter to [8{tp,dp}], a permutation to [8{dp,tp}] and a gather over
/// tp. One all-reduce, a gather and a slice move twice that.
///
/// If elements are smaller than a byte, steps cut only between bytes; without a type, elements are whole bytes.
std::vector<ReshardStep> plan_reshard(const Sharding& from, const Sharding& to, DType dtype = DType::undefined);

class StepCost;

/// The same, where steps are compared by another cost than the bytes that they move. It remembers what it found:
/// compiling one program asks for the same changes thousands of times.
class ReshardPlanner {
 public:
  /// `cost` outlives it.
  explicit ReshardPlanner(const StepCost& cost);
  ~ReshardPlanner();
  std::vector<ReshardStep> plan(const Sharding& from, const Sharding& to, DType dtype) const;

 private:
  struct Found;
  std::unique_ptr<Found> found_;
};

/// For each member of the group, the member that gets its piece in a permute or reorder; -1: none.
std::vector<int64_t> targets_of(const ReshardStep& step);

/// Bytes that one rank receives in a step (rank 0 in uneven splits), for a tensor of that type.
Expr bytes_received(const ReshardStep& step, DType dtype, const Mesh& mesh);

/// Adds the step's nodes to the program, at its end or before `before`: the result of the step for the local value
/// `value`.
Value* emit_reshard(Program& program, Value* value, const ReshardStep& step, const TensorType& global,
                    const std::string& global_name, const Node* before = nullptr);

}  // namespace tessera::spmd

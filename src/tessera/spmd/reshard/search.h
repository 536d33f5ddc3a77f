#pragma once

#include <optional>
#include <vector>

#include "tessera/spmd/reshard/reshard.h"

namespace tessera::spmd {

/// What a communication costs, by which steps are compared. By default, the number of elements that the rank with the
/// largest shards receives; a symbolic extent counts as a multiple of all usual axis sizes, so that only the fraction
/// that moves matters.
class StepCost {
 public:
  virtual ~StepCost() = default;
  virtual double extent(const Expr& size) const;
  /// `in`, `out`: elements of the largest shards before and after.
  virtual double of(Collective collective, const std::vector<AxisRef>& axes, double in, double out, DType dtype) const;
};

/// By default costs.
double elements_received(const std::vector<ReshardStep>& steps);

/// Whether the search supports this change between shardings whose parts have the same sizes: both must have the same
/// places, and at most one kind of reduction may be open, since several kinds must be reduced in the order that the
/// tensor states.
bool search_covers(const Sharding& from, const Sharding& to);

/// Steps between such shardings that cost less than `than`, or as much in fewer communications. Nullopt if there are
/// none, or too many layouts lie between.
///
/// The search goes from layout to layout in the order of the costs so far (Dijkstra's algorithm). It knows all
/// steps that ReshardKind has for layouts everywhere: a slice, a gather of minor axes, a reduction, a scatter of a sum,
/// an all-to-all of several axes, and a permutation of equal pieces, within a part or across dimensions.
///
/// Example: [x, y] → [y, x] with x=2,y=2 on a square is one permutation, which moves a quarter; gathers move all.
std::optional<std::vector<ReshardStep>> cheaper_steps(const Sharding& from, const Sharding& to,
                                                      const std::vector<ReshardStep>& than, const StepCost& cost = {},
                                                      DType dtype = DType::undefined);

}  // namespace tessera::spmd

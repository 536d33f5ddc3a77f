#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/ir/collective.h"
#include "tessera/passes/block_ring.h"
#include "tessera/spmd/program.h"

namespace tessera::passes {

/// A group in units of members that are near each other: a ring goes around the units over `far`, and within one,
/// members that differ along `near` share what each of them got.
struct GroupUnits {
  std::vector<AxisRef> far, near;  ///< together the group's axes, major first
};

/// The group over `axes` in that many units, by whose shards a dimension of `size` is split. Nullopt if the first axes
/// do not make as many units, or if a unit ends within an axis that does not divide the dimension evenly: digits of the
/// axis would then split it otherwise than the axis does. 0 units: each member is one.
std::optional<GroupUnits> units_of(const std::vector<AxisRef>& axes, int64_t units, const Expr& size);

/// The form's units; each member by itself if these cannot be.
GroupUnits units_or_members(const std::vector<AxisRef>& axes, const RingForm& form, const Expr& size);

/// Collectives within a unit; nothing happens where members are units.
class NearMembers {
 public:
  /// `value`: name of the global value that moves.
  NearMembers(spmd::Program& program, std::vector<AxisRef> near, std::string value)
      : program_(program), near_(std::move(near)), value_(std::move(value)) {}

  int64_t count() const { return ranks_of(near_); }
  /// The unit's block of the members' shards, of that extent in a dimension. Nodes are added before `before`.
  Value* gathered(Value* shard, size_t dim, const Expr& extent, const Node* before) const;
  /// This member's shard, of that extent, of the sum of the members' blocks.
  Value* summed(Value* block, size_t dim, const Expr& extent, const Node* before) const;

 private:
  Value* moved(Collective kind, Value* value, size_t dim, const Expr& extent, const Node* before) const;

  spmd::Program& program_;
  const std::vector<AxisRef> near_;
  const std::string value_;
};

}  // namespace tessera::passes

#pragma once

#include <set>
#include <string>
#include <vector>

#include "tessera/ops/rule.h"
#include "tessera/spmd/layout/layout.h"
#include "tessera/spmd/program.h"

namespace tessera::spmd {

/// The intervals of a dimension that ranks hold if it is split over these axes, in the order of the group's members.
std::vector<ops::Interval> shards_of(const Expr& size, const std::vector<AxisRef>& axes);

/// The interval of one member, whose number is an expression.
ops::Interval shard_of(const Expr& size, const std::vector<AxisRef>& axes, const Expr& member);

/// What ranks hold and what they read of an operand's dimension if an operator that reads it in windows (ops::Window)
/// is split over some axes. Lists have an entry for each member of the group; expressions are over symbols.
///
/// Example: 10 elements over 3 ranks, windows of 3 around each. The ranks hold 0-3, 4-6 and 7-9 and read -1-4, 3-7 and
/// 6-10; -1 and 10 are padding. Rank 1 gets element 3 from rank 0 and element 7 from rank 2.
struct Halo {
  Expr size;                        ///< of the operand's dimension
  std::vector<ops::Interval> held;  ///< together the whole dimension, in order
  std::vector<ops::Interval> read;  ///< padding included
  std::vector<ops::Interval>
      kept;  ///< the piece of `held` that the member uses: what it reads, and what may stay with it
  std::vector<ops::Interval> results;  ///< the result elements that the member computes

  Halo(const ops::Window& window, Expr operand_size, const Expr& result_size, const std::vector<AxisRef>& axes);
  int64_t members() const { return static_cast<int64_t>(held.size()); }
  /// The elements that one member reads from another.
  ops::Interval taken(int64_t reader, int64_t holder) const;
  /// How far apart, in members, some reader and the holder of its elements can be; negative: the holder comes first.
  std::set<int64_t> distances() const;
  /// The number of elements that a member gets from all others.
  Expr received(int64_t member) const;
  Expr before(int64_t member) const;  ///< padding that it reads before the dimension
  Expr after(int64_t member) const;   ///< and after it
};

/// A dimension of an operand's local part, and where it comes from.
struct HaloPlace {
  std::string name;           ///< of the global value
  std::vector<AxisRef> axes;  ///< that split the dimension, major first
  size_t dim = 0;
  Value* fill = nullptr;  ///< a scalar that all padding equals; null: no padding is added
};

/// Appends nodes that give each rank the elements that it reads: messages from the ranks that hold them, at any
/// distance, and a join of the pieces in order. Returns the value itself if each rank has what it reads.
Value* widened(Program& program, Value* value, const Halo& halo, const HaloPlace& place);

/// Elements that a rank receives along a halo factor of an operator's operands, if it is split over these axes: those
/// of the rank that receives the most. `sharding` is the operand's, whose dimension `dim` runs along the factor.
Expr halo_elements(const Halo& halo, const Sharding& sharding, size_t dim, const Mesh& mesh);

}  // namespace tessera::spmd

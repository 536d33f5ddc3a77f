#pragma once

#include <string>
#include <vector>

#include "tessera/ir/expr.h"
#include "tessera/mesh/mesh.h"

namespace tessera::dialect {

/// Converts between a group's members and the mesh's ranks.
///
/// A member's index has one digit per axis, the major first; one step of a digit is `stride` ranks. On the mesh
/// a=2,b=3,c=4 the group over {a, c} has the digits (2, stride 12) and (4, stride 1): member 5 = 1·4 + 1 is the rank 13
/// after the group's first. Neighbouring axes are one digit: {b, c} is (12, stride 1).
struct GroupDigits {
  struct Digit {
    int64_t size = 1;
    int64_t stride = 1;  ///< ranks from one value to the next
    bool operator==(const Digit&) const = default;
  };
  std::vector<Digit> digits;
  int64_t size = 1;   ///< members
  int64_t ranks = 1;  ///< of the mesh
};

/// Names of all axes: the group of all ranks.
std::vector<std::string> all_axes(const Mesh& mesh);

/// Throws a user error for a name that is not an axis of the mesh.
GroupDigits digits_of(const std::vector<std::string>& axes, const Mesh& mesh);

/// The rank as an expression over axis indices: 3·@dp + @tp.
Expr rank_expression(const Mesh& mesh);

/// The sum of a member's extent over the group. `extent` is an expression over axis indices, where @axis is this
/// rank's.
Expr sum_over_members(const Expr& extent, const std::vector<std::string>& axes, const Mesh& mesh);

/// `extent` on each member, as expressions over symbols and the indices of other axes.
std::vector<Expr> on_members(const Expr& extent, const std::vector<std::string>& axes, const Mesh& mesh);

}  // namespace tessera::dialect

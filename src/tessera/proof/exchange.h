#pragma once

#include <vector>

#include "tessera/proof/script.h"
#include "tessera/proof/statement.h"

/// Computes the results of a collective from the operands of a group's members.
namespace tessera::proof {

/// The members of a group, as a collective sees them.
class Members {
 public:
  virtual ~Members() = default;
  virtual size_t count() const = 0;
  /// The operand; nullopt for a member without one.
  virtual Held given(size_t member) const = 0;
  /// The result of a member that receives nothing.
  virtual Held zeros(size_t member) const = 0;
  /// Extents of the operand and of the result on that member.
  virtual Expr operand_extent(size_t member, size_t dim) const = 0;
  virtual Expr result_extent(size_t member, size_t dim) const = 0;
};

/// The result of each member. A gather joins pieces; operators that scatter cut a piece for each member, of the
/// member's extent.
std::vector<Held> results_of(const Communication& communication, const Members& members);

/// A value in parts of these extents, one after the other.
std::vector<Held> cut_up(const Rope& all, const std::vector<Expr>& extents);

}  // namespace tessera::proof

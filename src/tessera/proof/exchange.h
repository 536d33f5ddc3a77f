#pragma once

#include <vector>

#include "tessera/proof/script.h"
#include "tessera/proof/statement.h"

/// What a collective makes of the values that the members of a group give to it.
namespace tessera::proof {

/// The members of a group, as a collective sees them.
class Members {
 public:
  virtual ~Members() = default;
  virtual size_t count() const = 0;
  /// The operand; nothing for a member without one.
  virtual Held given(size_t member) const = 0;
  /// The result of a member that receives from nobody.
  virtual Held zeros(size_t member) const = 0;
  /// Extents of the operand and of the result on that member.
  virtual Expr operand_extent(size_t member, size_t dim) const = 0;
  virtual Expr result_extent(size_t member, size_t dim) const = 0;
};

/// By member, what it gets. A gather joins pieces; operators that scatter cut them, each of its own extent.
std::vector<Held> results_of(const Communication& communication, const Members& members);

/// A value in parts of these extents, one after the other.
std::vector<Held> cut_up(const Rope& all, const std::vector<Expr>& extents);

}  // namespace tessera::proof

#pragma once

#include <optional>
#include <vector>

#include "tessera/ir/expr.h"
#include "tessera/proof/number.h"

namespace tessera::proof {

/// A value as pieces of others, one after the other along one dimension: what Slice, Split and Concat make, and the
/// collectives that move blocks. However often it was cut and put together, it is the same rope again: pieces that
/// follow each other in what they are cut from are one, and all of something is that itself.
///
/// Example: of x = [8], cut (0, 3) and cut (3, 8), appended, has the number of x.
class Rope {
 public:
  /// All of a value whose extent in `dim` that is.
  Rope(const Number& value, size_t dim, Expr extent);

  size_t dim() const { return dim_; }
  /// The elements from `begin` to `end` in the dimension, 0 ≤ begin ≤ end ≤ its extent. Nullopt if that cannot be said,
  /// as of extents that are not known to have a common boundary.
  std::optional<Rope> cut(const Expr& begin, const Expr& end) const;
  /// Puts another one of the same dimension behind it.
  void append(const Rope& other);
  /// What stands for it; of all of a value, the value's number.
  Number number() const;

 private:
  struct Piece {
    Number of;
    Expr begin, end;  ///< in `of`
    Expr extent;      ///< of `of`
  };

  void add(Piece piece);

  size_t dim_;
  std::vector<Piece> pieces_;
};

}  // namespace tessera::proof

#pragma once

#include <optional>
#include <vector>

#include "tessera/ir/expr.h"
#include "tessera/proof/number.h"

namespace tessera::proof {

/// A value as a sequence of pieces of other values along one dimension. Slice, Split, Concat, and collectives that move
/// blocks make ropes. A rope does not depend on how it was cut and joined: adjacent pieces of a value merge, and all
/// pieces of a value together are that value.
///
/// Example: of x = [8], cut (0, 3) and cut (3, 8), appended, has the number of x.
class Rope {
 public:
  /// All of a value that has this extent in `dim`.
  Rope(const Number& value, size_t dim, Expr extent);

  size_t dim() const { return dim_; }
  /// The elements from `begin` to `end` in the dimension, 0 ≤ begin ≤ end ≤ its extent. Nullopt if they cannot be
  /// determined, for example if extents are not known to have a common boundary.
  std::optional<Rope> cut(const Expr& begin, const Expr& end) const;
  /// Appends another rope of the same dimension.
  void append(const Rope& other);
  /// The rope's number; if it is all of a value, the value's number.
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

#pragma once

#include <memory>
#include <vector>

#include "tessera/proof/number.h"
#include "tessera/proof/statement.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::proof {

/// Derives which values are equal on which ranks, only from the ranks' initial values and from nodes; it does not use
/// the stated layouts of values.
///
/// The premises: an input is the same on all ranks that take the same part of it, and a state on all ranks that hold
/// the same part (or, if no layout says which part that is, equal data). From there on, every value on every rank gets
/// a number (proof/number.h) for how it is computed. A collective's result is computed from all members' operands: an
/// all-reduce and an all-gather give all members the same, a reduce-scatter gives each another block of one value, a
/// broadcast gives the root's value; a message carries the sender's value. Blocks that are cut and joined again are the
/// original value (proof/rope.h).
///
/// Example: if ranks 0 and 1 hold different data of w, p = MatMul (x, w) is a different value on each, and so is
/// Relu (p). AllReduce (p) is the same on both.
class Derivation {
 public:
  /// `communications`: of each program, from communications_of. All ranks must be known to reach their ends
  /// (check_order). Both arguments must outlive this.
  Derivation(const runtime::RankPrograms& programs, const std::vector<std::vector<Communication>>& communications);
  ~Derivation();
  Derivation(const Derivation&) = delete;
  Derivation& operator=(const Derivation&) = delete;

  /// The number of a value of the rank's program. Values with equal numbers are equal; equal values may have different
  /// numbers.
  Number number(int rank, const Value* value) const;
  /// The part of an input's, output's or state's global value that a rank has, by its layout.
  Number part(int rank, const Value* value) const;
  /// The extent on that rank.
  Expr extent(int rank, const Value* value, size_t dim) const;

 private:
  class Walk;
  std::unique_ptr<const Walk> walk_;
};

}  // namespace tessera::proof

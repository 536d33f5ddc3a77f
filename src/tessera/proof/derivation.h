#pragma once

#include <memory>
#include <vector>

#include "tessera/proof/number.h"
#include "tessera/proof/statement.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::proof {

/// Derives which values are equal on which ranks, from the ranks' initial values and nodes alone; it does not use the
/// stated layouts of values.
///
/// Assumptions: an input is the same on all ranks that take the same part of it, and a state is the same on all ranks
/// that hold the same part (or, if no layout states the part, equal data). From these, every value on every rank gets a
/// number (proof/number.h) that identifies its computation. A collective's result is computed from all members'
/// operands: an all-reduce and an all-gather give all members the same, a reduce-scatter gives each another block of
/// one value, a broadcast gives the root's value; a message carries the sender's value. A value that is cut into blocks
/// and joined again is the original value (proof/rope.h).
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
  /// The part of an input's, output's or state's global value that a rank holds, by its layout.
  Number part(int rank, const Value* value) const;
  /// The extent on that rank.
  Expr extent(int rank, const Value* value, size_t dim) const;

 private:
  class Walk;
  std::unique_ptr<const Walk> walk_;
};

}  // namespace tessera::proof

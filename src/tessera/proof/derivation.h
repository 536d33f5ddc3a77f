#pragma once

#include <memory>
#include <vector>

#include "tessera/proof/number.h"
#include "tessera/proof/statement.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::proof {

/// What every value is on every rank, derived from what ranks begin with and from nodes alone; nothing that values say
/// of themselves is used.
///
/// What is known is this: an input is the same on all ranks that take the same part of it, and a state on all that hold
/// the same part (where no layout says that, those whose data are equal). From there on, every value on every rank gets
/// a number (proof/number.h) of how it is made. A collective's result is made of what all members give: an all-reduce
/// and an all-gather give all of them the same, a reduce-scatter gives each another block of the same, a broadcast what
/// the root has; a message is what was sent. Blocks that are cut and put together again are what they were
/// (proof/rope.h).
///
/// Example: p = MatMul (x, w) where ranks 0 and 1 hold other data of w is another value on each, and so is Relu (p).
/// AllReduce (p) is the same on both.
class Derivation {
 public:
  /// `communications`: of each program, as communications_of says. Ranks must be known to get to their ends
  /// (check_order). Both must outlive this.
  Derivation(const runtime::RankPrograms& programs, const std::vector<std::vector<Communication>>& communications);
  ~Derivation();
  Derivation(const Derivation&) = delete;
  Derivation& operator=(const Derivation&) = delete;

  /// Of a value of the rank's program. Values with equal numbers are equal; those that are equal may have other ones.
  Number number(int rank, const Value* value) const;
  /// Which part of what an input, output or state stands for a rank has, by its layout.
  Number part(int rank, const Value* value) const;
  /// As the rank has it.
  Expr extent(int rank, const Value* value, size_t dim) const;

 private:
  class Walk;
  std::unique_ptr<const Walk> walk_;
};

}  // namespace tessera::proof

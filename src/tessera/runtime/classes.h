#pragma once

#include <functional>
#include <memory>

#include "tessera/runtime/rank_programs.h"
#include "tessera/spmd/partition/held_part.h"

namespace tessera::runtime {

/// Makes the programs of the same model for fixed sizes of some symbols; a repeated call returns the same programs.
/// Throws user errors that name the sizes.
using ProgramsForSizes = std::function<std::shared_ptr<const RankPrograms>(const Symbols& fixed)>;

/// The programs to run at these sizes. A program assumes that extents which meet in a broadcast are equal: it serves
/// the class of sizes at which they are. Sizes at which one of them is 1 and the other is not are another class, with
/// programs of its own, in which the number 1 replaces the symbol:
///
///     x [batch, s] + y [batch, t]    s = 7, t = 7 → `programs`;  s = 1, t = 7 → those for s = 1
///
/// The class follows from sizes alone, so all ranks choose alike. On one rank nothing is split, so a broadcast in the
/// direction that the program states (to s here) needs no other programs. Throws a user error that names the operator
/// if no class fits, or if `for_sizes` is needed but null.
std::shared_ptr<const RankPrograms> programs_for(std::shared_ptr<const RankPrograms> programs, const Symbols& symbols,
                                                 const ProgramsForSizes& for_sizes);

}  // namespace tessera::runtime

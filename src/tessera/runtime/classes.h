#pragma once

#include <functional>
#include <memory>

#include "tessera/runtime/held_part.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::runtime {

/// Makes the programs of the same model for certain sizes of some symbols; asked again, it gives the same. It throws
/// user errors that name the sizes.
using ProgramsForSizes = std::function<std::shared_ptr<const RankPrograms>(const Symbols& fixed)>;

/// The programs to run at these sizes. A program takes extents that meet in a broadcast to be equal: it is for the
/// class of sizes at which they are. Where one of them is 1 and the other is not, that is another class, with programs
/// of its own, in which what is 1 is no symbol any more but the number:
///
///     x [batch, s] + y [batch, t]    s = 7, t = 7 → `programs`;  s = 1, t = 7 → those for s = 1
///
/// The class follows from sizes alone, so all ranks choose alike. On one rank nothing is split, and what broadcasts in
/// the direction that the program states (to s here) needs no other programs. Throws a user error that names the
/// operator if no class fits, or `for_sizes`, which may be null, is needed.
std::shared_ptr<const RankPrograms> programs_for(std::shared_ptr<const RankPrograms> programs, const Symbols& symbols,
                                                 const ProgramsForSizes& for_sizes);

}  // namespace tessera::runtime

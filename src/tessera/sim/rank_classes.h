#pragma once

#include <map>
#include <vector>

#include "tessera/runtime/rank_programs.h"

namespace tessera::sim {

/// A partition of the ranks. Ranks of a class do the same at the same times, so that one of them stands for all.
struct RankClasses {
  std::vector<int> of;         ///< by rank
  std::vector<int> first;      ///< by class: its lowest rank
  std::vector<int64_t> count;  ///< by class: its ranks
  /// By class: the first class whose ranks have the same machine program. Such classes differ in how slow they are, and
  /// in what ranks their groups have. Only itself if the program has messages, since its actions name their peers.
  std::vector<int> bound_like;
  /// A permutation counts as one meeting of its whole group, instead of a message from each member to another.
  bool whole_permutations = false;
};

/// The coarsest partition of a mesh's ranks in which the ranks of a class run the same program on equal extents, are
/// equally slow, and communicate with ranks of the same classes: corresponding groups have the same number of members
/// of each class, and their roots and the peers of messages are of the same class (color refinement; Cardon and
/// Crochemore 1982).
///
/// Along a permutation's messages, ranks may all differ, each one being farther than the others from one that has more
/// elements. If there would be more than kMostClasses classes, its whole group meets instead, as that of other
/// collectives does: a member then waits for all others, and not only for the one that sends to it.
///
/// `slow`: by rank, a factor on its kernels' times.
inline constexpr int kMostClasses = 64;
RankClasses classes_of(const runtime::RankPrograms& programs, const Symbols& sizes, const std::map<int, double>& slow);

/// All ranks in one class, if they run one program without messages, equally fast; else classes_of(). So extents that
/// differ by a unit of a dimension count as equal, and the end of a permutation as any other rank: on a mesh of 64 by 8
/// ranks that share 128,256 rows, one class instead of 125.
RankClasses similar_classes_of(const runtime::RankPrograms& programs, const Symbols& sizes,
                               const std::map<int, double>& slow);

/// Each rank in a class of its own.
RankClasses single_ranks(int64_t ranks);

}  // namespace tessera::sim

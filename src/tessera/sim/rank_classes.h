#pragma once

#include <map>
#include <vector>

#include "tessera/runtime/rank_programs.h"

namespace tessera::sim {

/// Ranks that do the same at the same times, so that one of them stands for all.
struct RankClasses {
  std::vector<int> of;         ///< by rank
  std::vector<int> first;      ///< by class: its lowest rank
  std::vector<int64_t> count;  ///< by class: its ranks
  /// By class: the first class whose ranks have the same machine program. Such classes differ in how slow they are, and
  /// in what ranks their groups have. Only itself if the program has messages, since its actions name their peers.
  std::vector<int> bound_like;
};

/// The coarsest partition of a mesh's ranks such that ranks of a class run the same program on equal extents, are
/// equally slow, and meet equal classes: each group in which a rank of a class communicates has as many members of each
/// class as the like groups of the class' other ranks, its roots and the peers of its messages are of equal classes
/// (color refinement; Cardon and Crochemore 1982).
///
/// `slow`: factors on the times of single ranks' kernels.
RankClasses classes_of(const runtime::RankPrograms& programs, const Symbols& sizes, const std::map<int, double>& slow);

/// Each rank by itself.
RankClasses single_ranks(int64_t ranks);

}  // namespace tessera::sim

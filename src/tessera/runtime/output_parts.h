#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/runtime/rank_state.h"
#include "tessera/spmd/partition/held_part.h"

namespace tessera::runtime {

/// A rank's part of a global value. Its bytes are dense, in the order of its elements; it has at least one.
struct OutputPart {
  int rank = 0;
  Box box;             ///< its place in the whole
  size_t element = 1;  ///< bytes of what the box counts (CopiedBox)

  size_t bytes() const { return static_cast<size_t>(box.count()) * element; }
  size_t offset() const { return static_cast<size_t>(box.first()) * element; }
  /// Whether it is one piece of the whole. If not, rank 0 copies it apart, and its sender copies it together if it has
  /// it in a whole.
  bool is_one_piece() const { return box.contiguous(); }
};

/// The part of `value` that the rank writes, unless it is empty or another rank writes the same.
std::optional<OutputPart> part_of(const RankPrograms& programs, int rank, const std::string& value,
                                  const Symbols& symbols);

/// The parts of `value` that rank 0 receives, in this order, if only the ranks `here` live in its process.
std::vector<OutputPart> received_parts(const RankPrograms& programs, std::span<const int> here,
                                       const std::string& value, const Symbols& symbols);

/// Completes a global value in the process of rank 0 if ranks live in several processes. The ranks of that process
/// write their parts to `whole` themselves; ranks of other processes send theirs, and rank 0 copies them into its
/// `whole`. Every rank calls this from its own thread, for the same values in the same order. `here`: the ranks of this
/// process. `own`: a sender's part, dense, if it is not in `whole`; else null.
void bring_parts(RankState& rank, const RankPrograms& programs, const Symbols& symbols, std::span<const int> here,
                 const std::string& value, void* whole, const void* own = nullptr);

}  // namespace tessera::runtime

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/comm/local/fabric.h"

/// How the members of a local group move and reduce their published buffers: each member pulls its own data.
namespace tessera::comm {

/// Room for one pointer per member.
struct Pointers {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

/// Copies the parts of member `me`'s input that others read to `to`; leaves out its own block, if it has one.
void copy_for_others(const Operation& operation, int me, std::byte* to);

/// Writes member `me`'s `out` from all members' entries, for any kind but permute, send and recv.
void pull(const Operation& operation, int me, std::span<const Entry> entries, Pointers& pointers);

/// Elements of the one result of all_reduce, broadcast, reduce and gather, which members may compute together; 0 for
/// other kinds, in which each member computes a result of its own.
int64_t shared_elements(const Operation& operation);

/// A shared result is cut into pieces, at least one per member unless they would be too small, and each member has a
/// share of them. A member reduces or copies a piece and writes it to the `out` of every member that wants it. After
/// its own pieces it helps with the others', so that nobody waits for a member that has arrived but has no core. Every
/// input is read once, every output written once. Example: 100'000 float32 are the seven pieces [0, 16384) … [98304,
/// 100000); member 0 of two has the first three.
constexpr size_t kPieceBytes = 64 << 10, kLeastPieceBytes = 4 << 10;
int64_t piece_count(const Operation& operation, size_t members);

/// Works on unclaimed pieces until there are none; true if this completes the last piece.
bool share_pieces(const Operation& operation, int me, Slot& slot, Pointers& pointers);

}  // namespace tessera::comm

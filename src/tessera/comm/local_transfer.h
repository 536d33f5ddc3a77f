#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/comm/local_fabric.h"

/// How the members of a local group move and reduce what they have published: each pulls what it needs, by itself.
namespace tessera::comm {

/// Room for one pointer per member.
struct Pointers {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

/// Copies to `to` what others read of member `me`'s input; its own block, if it has one, is left out.
void copy_for_others(const Operation& operation, int me, std::byte* to);

/// Writes member `me`'s `out` from all members' entries, of any kind but permute, send and recv.
void pull(const Operation& operation, int me, std::span<const Entry> entries, Pointers& pointers);

/// Elements of the one result of all_reduce, broadcast, reduce and gather, which members may make together; 0 of other
/// kinds, of which each member has a result of its own to make.
int64_t shared_elements(const Operation& operation);

/// What is made together is cut into pieces, one per member at least unless they were too small, of which each member
/// has a share. It reduces or copies a piece and writes it to the `out` of every member that wants it; when it has done
/// its own, it helps with the others', so that nobody waits for a member that has come but has no core. Every input is
/// read once, every output written once. Example: of 100'000 float32 the pieces are [0, 16384) … [98304, 100000),
/// seven; member 0 of two has the first three.
constexpr size_t kPieceBytes = 64 << 10, kLeastPieceBytes = 4 << 10;
int64_t piece_count(const Operation& operation, size_t members);

/// Does what nobody has claimed of the pieces; true if this completes the last one.
bool share_pieces(const Operation& operation, int me, Slot& slot, Pointers& pointers);

}  // namespace tessera::comm

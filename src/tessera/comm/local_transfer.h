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

/// Writes member `me`'s `out` from all members' entries, of any kind but permute, send and recv.
void pull(const Operation& operation, int me, std::span<const Entry> entries, Pointers& pointers);

/// Shared all_reduce and broadcast: the elements are cut into pieces of kPieceBytes, of which each member has a share.
/// It reduces a piece, or reads the root's, and writes the result to every member's `out`; when it has done its own, it
/// helps with the others', so that nobody waits for a member that has come but has no core. Every input is read once,
/// every output written once.
/// Example: of 100'000 float32 the pieces are [0, 16384) … [98304, 100000), seven; member 0 of two has the first three.
constexpr int64_t kPieceBytes = 64 << 10;
int64_t piece_count(const Operation& operation);

/// Does what nobody has claimed of the pieces; true if this completes the last one.
bool share_pieces(const Operation& operation, int me, Slot& slot, Pointers& pointers);

}  // namespace tessera::comm

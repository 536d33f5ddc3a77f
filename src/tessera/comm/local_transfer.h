#pragma once

#include <span>

#include "tessera/comm/local_fabric.h"

/// How the members of a local group move and reduce what they have published: each pulls what it needs, by itself.
namespace tessera::comm {

/// Writes member `me`'s `out` from all members' entries, of any kind but permute, send and recv. `inputs` is room for
/// one pointer per member.
void pull(const Operation& operation, int me, std::span<const Entry> entries, std::span<const void*> inputs);

/// Two-phase all_reduce: each member reduces its own chunk of all inputs into its `out`; when all have, each copies the
/// others' chunks. Member j's chunk is the j-th n-th of the elements, cut at cache lines. Example: of 100 float32 over
/// three members [0, 48) [48, 96) [96, 100). Every byte is read once per member and reduced once in all.
void reduce_chunk(const Operation& operation, int me, std::span<const Entry> entries, std::span<const void*> inputs);
void copy_chunks(const Operation& operation, int me, std::span<const Entry> entries);

}  // namespace tessera::comm

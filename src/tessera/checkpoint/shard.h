#pragma once

#include <vector>

#include "tessera/checkpoint/checkpoint.h"
#include "tessera/checkpoint/save.h"
#include "tessera/mesh/box.h"
#include "tessera/mesh/sharding.h"

namespace tessera::checkpoint {

/// A rectangular piece of a tensor within one rank's shard.
struct ShardPiece {
  Region whole;  ///< in the tensor
  Box local;     ///< in the shard
};

/// The pieces of a shard, none of them empty; none if the rank does not have the tensor. A dimension whose split parts
/// have whole or split ones before them is not a single interval: 3·4{tp} over tp=2 gives rank 0 three pieces of a
/// dimension of 12, those from 0, 4 and 8 on.
std::vector<ShardPiece> pieces_of(const Sharding& sharding, const Mesh& mesh, const std::vector<int64_t>& coordinates,
                                  const SymbolLookup& symbols);

/// Whether the rank is the lowest of those with the same shard, so that it is the one to save it. A partial tensor, of
/// which no rank has the value, is an internal error.
bool saves_shard(const Sharding& sharding, const Mesh& mesh, const std::vector<int64_t>& coordinates);

/// Adds what a rank saves of a tensor, from its dense shard: nothing, unless saves_shard(). `at`, if given, says where
/// in the tensor the elements begin that `sharding` divides among ranks, which then are a region of it.
void add_shard(RankFile& file, const TensorType& tensor, const Sharding& sharding, const Mesh& mesh,
               const std::vector<int64_t>& coordinates, const SymbolLookup& symbols, const void* shard,
               const Dims& at = {});

/// Fills a rank's dense shard of a tensor, under any sharding; `at` as in add_shard.
void read_shard(const Checkpoint& checkpoint, const std::string& name, const Sharding& sharding, const Mesh& mesh,
                const std::vector<int64_t>& coordinates, const SymbolLookup& symbols, void* shard, const Dims& at = {});

}  // namespace tessera::checkpoint

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/mesh/box.h"
#include "tessera/program_io/file_stamp.h"
#include "tessera/spmd/program.h"

namespace tessera::program_io {

/// One rank's shard of a state, and its place in the rank's weights file.
struct StoredShard {
  const Value* state = nullptr;
  Box box;  ///< region of the whole data; unused if `whole`
  bool whole = false;
  Dims dims;  ///< of the shard
  uint64_t offset = 0;
  size_t bytes = 0;
};

/// The shards of the rank at `coordinates`, in the states' order, each at a multiple of 64 bytes. Ranks whose shards
/// have equal extents have equal layouts.
std::vector<StoredShard> lay_out_shards(const spmd::Program& program, const std::vector<int64_t>& coordinates);

/// A 64-bit hash that identifies a shard by its type, its extents and its elements.
uint64_t hash_of_shard(const Tensor& shard);

/// Writes the shards, dense and row-major, straight from the (mapped) initial data with a buffer of a few MiB.
FileStamp write_shards(const spmd::Program& program, const std::vector<StoredShard>& shards,
                       const std::filesystem::path& folder, const std::string& file);

}  // namespace tessera::program_io

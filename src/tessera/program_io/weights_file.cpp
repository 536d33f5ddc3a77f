#include "tessera/program_io/weights_file.h"

#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/io/atomic_file.h"
#include "tessera/io/crc32.h"
#include "tessera/ir/hash.h"
#include "tessera/ir/on_demand.h"
#include "tessera/mesh/byte_box.h"

namespace tessera::program_io {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr size_t kBufferBytes = size_t{4} << 20;

std::optional<int64_t> no_symbols(std::string_view) {
  return std::nullopt;
}

class StampedFile {
 public:
  StampedFile(const std::filesystem::path& folder, const std::string& file)
      : file_(folder / file), stamp_{file, 0, 0} {}

  void write(const void* data, size_t bytes) {
    file_.write(data, bytes);
    stamp_.crc32 = update_crc32(stamp_.crc32, data, bytes);
    stamp_.bytes += bytes;
  }
  void pad_to(uint64_t offset) {
    static constexpr std::array<char, kAlignment> kZeros = {};
    check(offset >= stamp_.bytes && offset - stamp_.bytes < kAlignment, "shards are laid out one after the other");
    write(kZeros.data(), static_cast<size_t>(offset - stamp_.bytes));
  }
  FileStamp commit() {
    file_.commit();
    return stamp_;
  }

 private:
  AtomicFile file_;
  FileStamp stamp_;
};

}  // namespace

std::vector<StoredShard> lay_out_shards(const spmd::Program& program, const std::vector<int64_t>& coordinates) {
  std::vector<StoredShard> shards;
  uint64_t end = 0;
  for (const auto& value : program.graph->values()) {
    const Value* state = value.get();
    if (state->kind != ValueKind::state) continue;
    if (!program.placement(state).sharding.lives_on(program.mesh, coordinates)) continue;
    const Tensor& data = program.initial.at(state);
    if (data.dtype == DType::string)
      fail("write", "'{}' holds strings, which cannot be a state of a written program", state->name);
    StoredShard shard;
    shard.state = state;
    const Sharding& sharding = program.placement(state).sharding;
    shard.whole = sharding.is_whole();
    if (shard.whole) {
      shard.dims = data.dims;
      shard.bytes = data.bytes;
    } else {
      for (const Expr& extent : state->shape())
        shard.dims.push_back(bind_rank(extent, program.mesh, coordinates).evaluate(no_symbols));
      const auto part = byte_box(box_of(sharding, program.mesh, coordinates, no_symbols), data.dtype);
      if (!part)
        fail("write", "'{}' has elements of {} bits and cannot be split within a byte; keep it whole", state->name,
             bits_of(data.dtype));
      shard.box = part->box;
      shard.bytes = static_cast<size_t>(part->box.count()) * part->unit;
    }
    shard.offset = (end + kAlignment - 1) / kAlignment * kAlignment;
    end = shard.offset + shard.bytes;
    shards.push_back(std::move(shard));
  }
  return shards;
}

uint64_t hash_of_shard(const Tensor& shard) {
  Hash hash;
  hash.add(fmt::format("{}[{}] {:016x}", name_of(shard.dtype), fmt::join(shard.dims, ","),
                       hash_of_bytes(shard.data, shard.bytes)));
  return hash.value();
}

FileStamp write_shards(const spmd::Program& program, const std::vector<StoredShard>& shards,
                       const std::filesystem::path& folder, const std::string& file) {
  StampedFile out(folder, file);
  std::vector<std::byte> buffer;
  for (const StoredShard& shard : shards) {
    const Tensor whole = made_whole(program.initial.at(shard.state));
    if (!whole.data && whole.bytes > 0) fail("write", "the data of '{}' are missing", shard.state->name);
    out.pad_to(shard.offset);
    if (shard.whole) {
      out.write(whole.data, whole.bytes);
      continue;
    }
    const size_t element = std::max<size_t>(1, static_cast<size_t>(bits_of(whole.dtype)) / 8);
    for_each_piece(shard.box, static_cast<int64_t>(kBufferBytes / element), [&](const Box& piece) {
      size_t bytes = static_cast<size_t>(piece.count()) * element;
      if (piece.contiguous()) {
        out.write(whole.data + static_cast<size_t>(piece.first()) * element, bytes);
        return;
      }
      buffer.resize(bytes);
      copy_from_whole(buffer.data(), whole.data, piece, element);
      out.write(buffer.data(), bytes);
    });
  }
  return out.commit();
}

}  // namespace tessera::program_io

#include "tessera/checkpoint/shard.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::checkpoint {
namespace {

struct Interval {
  int64_t begin = 0, extent = 1;
};

// The elements of a dimension that digits [offset, offset + extent) of each part select, as maximal intervals; a box's
// entries from `part` on are those of the dimension's parts, major to minor.
std::vector<Interval> intervals_of(const Box& box, size_t part, size_t parts) {
  std::vector<Interval> intervals = {{}};  // of the parts so far, minor first, within a `unit`
  int64_t unit = 1;
  for (size_t p = part + parts; p-- > part;) {
    if (intervals.size() == 1 && intervals[0].extent == unit) {
      intervals = {{box.offsets[p] * unit, box.extents[p] * unit}};
    } else {
      std::vector<Interval> repeated;
      for (int64_t digit = box.offsets[p]; digit < box.offsets[p] + box.extents[p]; ++digit)
        for (const Interval& interval : intervals) repeated.push_back({digit * unit + interval.begin, interval.extent});
      intervals = std::move(repeated);
    }
    unit *= box.dims[p];
  }
  return intervals;
}

Region moved(Region region, const Dims& by) {
  for (size_t d = 0; d < by.size(); ++d) region.begin[d] += by[d];
  return region;
}

}  // namespace

std::vector<ShardPiece> pieces_of(const Sharding& sharding, const Mesh& mesh, const std::vector<int64_t>& coordinates,
                                  const SymbolLookup& symbols) {
  if (!sharding.lives_on(mesh, coordinates)) return {};
  const Box box = box_of(sharding, mesh, coordinates, symbols);
  if (box.count() == 0) return {};
  Dims local_dims;
  std::vector<ShardPiece> pieces = {{}};
  size_t part = 0;
  for (const DimSharding& dim : sharding.dims) {
    const std::vector<Interval> intervals = intervals_of(box, part, dim.parts.size());
    part += dim.parts.size();
    std::vector<ShardPiece> longer;
    int64_t local = 0;
    for (const ShardPiece& piece : pieces) {
      local = 0;
      for (const Interval& interval : intervals) {
        ShardPiece& next = longer.emplace_back(piece);
        next.whole.begin.push_back(interval.begin);
        next.whole.extent.push_back(interval.extent);
        next.local.offsets.push_back(local);
        next.local.extents.push_back(interval.extent);
        local += interval.extent;
      }
    }
    local_dims.push_back(local);
    pieces = std::move(longer);
  }
  for (ShardPiece& piece : pieces) piece.local.dims = local_dims;
  return pieces;
}

bool saves_shard(const Sharding& sharding, const Mesh& mesh, const std::vector<int64_t>& coordinates) {
  check(!sharding.is_partial(), "a tensor that is saved is not partial");
  if (!sharding.lives_on(mesh, coordinates)) return false;
  // The lowest rank with the same shard has 0 for every digit of its coordinates that the sharding does not use.
  std::vector<int64_t> lowest(coordinates.size(), 0);
  for (const AxisRef& axis : sharding.axes()) {
    const auto a = static_cast<size_t>(*mesh.find(axis.axis));
    lowest[a] += digit_along(axis, mesh, coordinates) * (mesh.axes()[a].size / (axis.pre * axis.size));
  }
  return lowest == coordinates;
}

void add_shard(RankFile& file, const TensorType& tensor, const Sharding& sharding, const Mesh& mesh,
               const std::vector<int64_t>& coordinates, const SymbolLookup& symbols, const void* shard,
               const Dims& at) {
  if (!saves_shard(sharding, mesh, coordinates)) return;
  if (count_of(tensor.dims) == 0) return file.add(tensor, Region::whole(tensor.dims), nullptr);  // it exists
  const size_t element = static_cast<size_t>(bits_of(tensor.dtype)) / 8;
  std::vector<std::byte> dense;
  for (const ShardPiece& piece : pieces_of(sharding, mesh, coordinates, symbols)) {
    const Region region = moved(piece.whole, at);
    const auto* elements = static_cast<const std::byte*>(shard);
    if (piece.local.contiguous()) {
      file.add(tensor, region, elements + static_cast<size_t>(piece.local.first()) * element);
    } else {
      dense.resize(bytes_of(tensor.dtype, piece.local.count()));
      copy_from_whole(dense.data(), shard, piece.local, element);
      file.add(tensor, region, dense.data());
    }
  }
}

void read_shard(const Checkpoint& checkpoint, const std::string& name, const Sharding& sharding, const Mesh& mesh,
                const std::vector<int64_t>& coordinates, const SymbolLookup& symbols, void* shard, const Dims& at) {
  for (const ShardPiece& piece : pieces_of(sharding, mesh, coordinates, symbols)) {
    const Tensor dense = checkpoint.read(name, moved(piece.whole, at));
    copy_to_whole(shard, dense.data, piece.local, dense.bytes / static_cast<size_t>(piece.whole.count()));
  }
}

}  // namespace tessera::checkpoint

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/mesh/sharding.h"

/// Converts layouts given by lists of devices to layouts over the axes of a mesh.
namespace tessera {

/// The holders of each shard of a tensor: device numbers, ascending. Dimensions are split into factors, factor i into
/// `counts[i]` shards; shards are numbered row-major over the factors. Without factors there is one shard, the whole
/// tensor.
struct DeviceList {
  std::vector<int64_t> counts;
  std::vector<std::vector<int64_t>> holders;
  bool operator==(const DeviceList&) const = default;
  auto operator<=>(const DeviceList&) const = default;
};

/// A digit of a shard's number along one factor, major first: the holder's digit along an axis or, without an axis, a
/// digit over shards of the same holder (a cyclic layout).
struct ShardDigit {
  int64_t size = 1;
  std::optional<AxisRef> axis;
};

/// The same layout over a mesh.
struct ListedLayout {
  std::vector<std::vector<ShardDigit>> factors;
  std::vector<PlacedAxis> at;  ///< the place of the holders, if not everywhere
};

/// The mesh that follows from a set of lists.
struct ListedMesh {
  Mesh mesh;
  std::vector<int64_t> devices;                      ///< by rank
  std::vector<std::optional<ListedLayout>> layouts;  ///< for each list; nullopt: none over this mesh
};

/// Finds the mesh of these devices over whose axes the most lists are layouts. If one factorization fits all of these
/// lists, its axes are "d", or "d0", "d1", … major first; else there is one axis, "d", and layouts use its sub-axes.
/// Ranks are devices in ascending order, unless more lists are layouts in the order that one of the lists has. `named`
/// is used instead if it has as many ranks and all lists are layouts over its axes.
ListedMesh mesh_of_lists(const std::vector<int64_t>& devices, const std::vector<DeviceList>& lists,
                         const std::optional<Mesh>& named = std::nullopt);

/// The inverse: the ranks that hold each shard of a layout.
std::vector<std::vector<int64_t>> holders_of(const ListedLayout& layout, const Mesh& mesh);

}  // namespace tessera

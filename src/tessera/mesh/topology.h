#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/mesh/mesh.h"

namespace tessera {
inline namespace v1 {

/// One kind of link on an axis. It joins `size` units. A unit consists of the levels before it on the axis, and of the
/// mesh's later axes: at the first level of the last axis it is a rank, at the next level a host of ranks.
struct LinkLevel {
  int64_t size = 1;
  double alpha = 0;      ///< latency of a message, seconds
  double bandwidth = 1;  ///< out of a unit and, at the same time, into it, bytes/s; its ranks share it
  std::string name;      ///< for messages: "ethernet"; may be empty
  bool operator==(const LinkLevel&) const = default;
};

/// The links that the axes of a mesh run over. Empty if nothing is known.
struct Topology {
  struct Axis {
    std::string name;
    std::vector<LinkLevel> levels;  ///< the nearest first; their sizes multiply to the axis' size
    bool operator==(const Axis&) const = default;
  };
  std::vector<Axis> axes;
  std::string source = "topology";  ///< for messages: the file's path

  bool empty() const { return axes.empty(); }
  /// Null if nothing is known of the axis.
  const Axis* find(std::string_view axis) const;
  /// Throws a user error for an axis that the mesh does not have, or whose sizes do not multiply to its size.
  void require_fits(const Mesh& mesh) const;

  /// Reads {"axes": {"tp": [{"size": 4, "alpha": 1e-6, "bandwidth": 5e9, "name": "shared memory"}, …]}}; a name may be
  /// left out. Throws a user error naming `source` and the place for anything else.
  static Topology from_json(std::string_view text, std::string_view source = "topology");
  std::string to_json() const;
};

}  // namespace v1
}  // namespace tessera

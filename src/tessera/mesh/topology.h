#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/mesh/mesh.h"

namespace tessera {
inline namespace v1 {

/// One kind of link on an axis, which joins `size` units. A unit consists of the ranks that the levels before it on the
/// axis, and the mesh's later axes, join: at the first level of the last axis a rank, at the next level, for example, a
/// host.
struct LinkLevel {
  int64_t size = 1;
  double alpha = 0;      ///< latency of a message, seconds
  double bandwidth = 1;  ///< bytes/s out of a unit and, at the same time, into it; shared by its ranks
  std::string name;      ///< for messages: "ethernet"; may be empty
  bool operator==(const LinkLevel&) const = default;
};

/// The links that the axes of a mesh use. Empty if unknown.
struct Topology {
  struct Axis {
    std::string name;
    std::vector<LinkLevel> levels;  ///< the nearest first; their sizes multiply to the axis' size
    bool operator==(const Axis&) const = default;
  };
  std::vector<Axis> axes;
  std::string source = "topology";  ///< for messages: the file's path

  bool empty() const { return axes.empty(); }
  /// Null if the axis is unknown.
  const Axis* find(std::string_view axis) const;
  /// Throws a user error if the mesh lacks an axis, or the sizes of its levels do not multiply to its size.
  void require_fits(const Mesh& mesh) const;

  /// Reads {"axes": {"tp": [{"size": 4, "alpha": 1e-6, "bandwidth": 5e9, "name": "shared memory"}, …]}}; names are
  /// optional. Throws a user error that names `source` and the place for any other text.
  static Topology from_json(std::string_view text, std::string_view source = "topology");
  std::string to_json() const;
};

}  // namespace v1
}  // namespace tessera

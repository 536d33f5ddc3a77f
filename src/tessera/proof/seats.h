#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/mesh/mesh.h"

namespace tessera::proof {

/// For each set of axes that communication names, the group of each rank and its member index in it.
class Seats {
 public:
  struct Seat {
    int group = -1;  ///< of groups()
    int member = -1;
  };

  explicit Seats(const Mesh& mesh) : mesh_(mesh) {}

  /// The seats by rank; the reference stays valid. Throws a user error if the mesh has no such axes.
  const std::vector<Seat>& along(const std::vector<std::string>& axes);
  /// The ranks in each group, along all axes so far.
  const std::vector<std::vector<int>>& groups() const { return groups_; }

 private:
  const Mesh& mesh_;
  std::vector<std::vector<int>> groups_;
  std::map<std::vector<std::string>, std::vector<Seat>> seats_;
};

}  // namespace tessera::proof

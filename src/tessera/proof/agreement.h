#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/proof/statement.h"

namespace tessera::proof {

/// What one rank states at a communication: its node, with shapes bound to the rank.
struct Statement {
  const Communication* communication = nullptr;
  Shape in, out;
  int64_t to = -1, from = -1;
};

/// The statements of a mesh's ranks, each kept once: ranks share a statement if it does not depend on the coordinates
/// in which they differ. Peers are given as members of the group, so they are the same in all groups over the same axes
/// unless the program makes them differ.
class Statements {
 public:
  Statements(const Mesh& mesh, const std::vector<std::vector<Communication>>& communications);

  /// An index that is the same for equal statements of one node.
  int of(int program, size_t at, const std::vector<int64_t>& coordinates);
  const Statement& operator[](int index) const { return all_[index]; }

 private:
  // Values that are computed once for each setting of the coordinates along some axes.
  template <typename Value>
  class ByCoordinates {
   public:
    ByCoordinates() = default;
    ByCoordinates(const Mesh& mesh, const std::set<size_t>& axes);
    std::optional<Value>& at(const std::vector<int64_t>& coordinates);
    size_t axes() const { return axes_.size(); }
    bool counts(size_t axis) const;

   private:
    std::vector<std::pair<size_t, size_t>> axes_;  // axes of the mesh, and their sizes
    std::vector<std::optional<Value>> known_;      // row-major
  };
  struct Peers {
    int64_t to = -1, from = -1;
  };
  // A shape of communications, and its extents on ranks.
  struct BoundShape {
    Shape shape;
    ByCoordinates<Shape> on;
  };
  struct Site {
    const Communication* communication = nullptr;
    BoundShape *in = nullptr, *out = nullptr;
    ByCoordinates<Peers> peers;
    ByCoordinates<int> statement;
  };

  std::set<size_t> axes_of(const std::set<std::string>& symbols) const;
  BoundShape* shared(const Shape& shape);
  const Shape& bound(BoundShape& shape, const std::vector<int64_t>& coordinates) const;
  Peers peers_of(Site& site, const std::vector<int64_t>& coordinates);
  bool is_alike(const Site& site, const std::vector<int64_t>& coordinates) const;

  const Mesh& mesh_;
  std::set<size_t> all_axes_;
  std::map<std::string, BoundShape> shapes_;  // by text
  std::vector<std::vector<Site>> sites_;      // by program and communication
  std::vector<Statement> all_;
};

/// Two members whose statements contradict each other, and the reason.
struct Clash {
  size_t a = 0, b = 0;  ///< members
  std::string rule;     ///< "order", "shape", "message" or "layout"
  std::string why;      ///< "one reduces by sum, the other by max"
};

/// The first contradiction between the statements of a group's members (in member order) that would run together as one
/// collective; nullopt if there is none.
std::optional<Clash> disagreement(const std::vector<const Statement*>& members,
                                  const std::vector<std::vector<int64_t>>& coordinates, const Mesh& mesh);

/// Why a receive does not accept the message that is sent; nullopt if it does.
std::optional<std::string> mismatch(const Statement& sent, const Statement& received);

}  // namespace tessera::proof

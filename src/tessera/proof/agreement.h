#pragma once

#include <map>
#include <optional>
#include <set>

#include "tessera/proof/statement.h"

namespace tessera::proof {

/// What one rank says when it comes to a communication: its node with the shapes bound to it.
struct Statement {
  const Communication* communication = nullptr;
  std::vector<int64_t> coordinates;  ///< of the (first) rank that says it
  Shape in, out;
  int64_t to = -1, from = -1;
};

/// Statements of the ranks of a mesh, each kept once: ranks whose coordinates matter to nothing in it share one.
class Statements {
 public:
  Statements(const Mesh& mesh, const std::vector<std::vector<Communication>>& communications);

  /// An index that is the same for equal statements of one node.
  int of(int program, size_t at, const std::vector<int64_t>& coordinates);
  const Statement& operator[](int index) const { return all_[index]; }
  const Mesh& mesh() const { return mesh_; }

 private:
  const Mesh& mesh_;
  const std::vector<std::vector<Communication>>& communications_;
  std::vector<std::vector<std::vector<size_t>>> used_axes_;  // by program and communication
  std::map<std::tuple<int, size_t, std::vector<int64_t>>, int> known_;
  std::vector<Statement> all_;
};

/// Two members that do not fit together, and why.
struct Clash {
  size_t a = 0, b = 0;  ///< members
  std::string rule;     ///< "order", "shape", "message" or "layout"
  std::string why;      ///< "one reduces by sum, the other by max"
};

/// Whether the members of a group, in member order, may run these statements together as one collective.
std::optional<Clash> disagreement(const std::vector<const Statement*>& members,
                                  const std::vector<std::vector<int64_t>>& coordinates, const Mesh& mesh);

/// Why a receive may not take what was sent; nullopt if it may.
std::optional<std::string> mismatch(const Statement& sent, const Statement& received);

}  // namespace tessera::proof

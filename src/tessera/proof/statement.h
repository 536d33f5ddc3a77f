#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/spmd/program.h"

namespace tessera::proof {

/// A communication node, for any rank of a class. Expressions are over symbols and axis indices.
struct Communication {
  const Node* node = nullptr;
  comm::Kind kind = comm::Kind::barrier;
  std::vector<std::string> axes;  ///< as the node writes them: they identify the group
  DType dtype = DType::undefined;
  Reduction reduction = Reduction::sum;
  int64_t root = 0;
  int64_t dim = -1, split_dim = -1, concat_dim = -1;
  std::string value;         ///< the global value that it moves
  bool has_operand = false;  ///< false if a rank gives nothing
  Shape in, out;
  Expr extent, split_extent, concat_extent;  ///< of a member in `dim`, …: over symbols and that member's axis indices
  Expr to = -1, from = -1;                   ///< of messages: ranks
  std::string step;                          ///< of messages: which of a lowered collective's
  std::optional<int64_t> bucket;             ///< in which it starts with others
  std::vector<int64_t> targets;              ///< of a permutation: the member that each member sends to
  std::optional<Sharding> layout;            ///< of the result, if it stands for a global value
  bool as_written = false;                   ///< Program::as_written: it need not state its layout again

  bool is_message() const { return traits_of(kind).message; }
  /// Whether one rank names others.
  bool has_peers() const { return is_message() || kind == comm::Kind::permute; }
  /// "AllReduce sum of 'h' float32[2, 8]"
  std::string str() const;
};

/// The statement of a node's attributes alone.
Communication statement_of(const Node& node, comm::Kind kind);

/// All communication nodes of a program, in order. Throws user errors, stage "check", for nodes that no reader
/// understands.
std::vector<Communication> communications_of(const spmd::Program& program);

/// Whether all extents are equal_as_extents().
bool equal_as_shapes(const Shape& a, const Shape& b);

}  // namespace tessera::proof

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/spmd/collective_attributes.h"
#include "tessera/spmd/program.h"

namespace tessera::proof {

/// A communication node, for any rank of a class: its attributes, whose axes identify the group, and what follows from
/// its operands and results. Expressions are over symbols and axis indices.
struct Communication : spmd::CollectiveAttributes {
  const Node* node = nullptr;
  DType dtype = DType::undefined;  ///< of the elements that move
  bool has_operand = false;        ///< false if the rank sends nothing
  Shape in, out;
  spmd::MemberExtents extents;     ///< over the member's axis indices
  Expr to = -1, from = -1;         ///< peer ranks of messages
  std::optional<Sharding> layout;  ///< of the result, if it stands for a global value
  bool as_written = false;         ///< Program::as_written: it need not state its layout again

  bool is_message() const { return traits_of(kind).message; }
  /// Whether a rank names its peers (Send and Recv).
  bool has_peers() const { return is_message() || kind == comm::Kind::permute; }
  /// "AllReduce sum of 'h' float32[2, 8]"
  std::string str() const;
};

/// The statement of a node's attributes alone. Throws as spmd::read_collective().
Communication statement_of(const Node& node, const Mesh& mesh);

/// All communication nodes of a program, in order. Throws like spmd::read_collective(), and for a message to a rank
/// that is unknown.
std::vector<Communication> communications_of(const spmd::Program& program);

/// Whether all extents are equal_as_extents().
bool equal_as_shapes(const Shape& a, const Shape& b);

}  // namespace tessera::proof

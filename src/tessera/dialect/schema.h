#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"
#include "tessera/spmd/collective_attributes.h"

/// The operators of domain tessera.comm, version 1, in one table. docs/dialect.md describes them in words.
///
/// A *group* is the ranks that differ only along a node's `axes`; *members* are numbered from 0, row-major in the order
/// of the axes. A *rank* is a number in the whole mesh. If a program orders communication by tokens, every operator
/// that communicates has one more operand and one more result than its schema states, both last: int64 scalars.
namespace tessera::dialect {

struct Schema {
  std::string_view op;
  std::vector<std::string_view> operands;  ///< without the token
  std::vector<std::string_view> optional;  ///< further operands, for operators that do not communicate
  std::vector<std::string_view> results;   ///< without the token
  std::vector<spmd::AttributeSchema> attributes;
  std::optional<comm::Kind> kind;  ///< of its communication; nullopt: it does not communicate
  /// Sets the results' types from the operands'.
  void (*infer)(Node& node, const Mesh& mesh);
};

/// The opaque type of a handle of a rank.
inline constexpr std::string_view kRankType = "Rank";

/// Every operator, in the order of docs/dialect.md.
const std::vector<Schema>& schemas();
/// Null if the dialect has no operator of that name.
const Schema* find_schema(std::string_view op);
/// The kind of communication of a node of the dialect; nullopt for all other nodes.
std::optional<comm::Kind> kind_of(const Node& node);
/// Whether the node is of the dialect and communicates.
bool communicates(const Node& node);

/// The rank that a Send or Recv names, over axis indices; -1 is nobody. Throws a user error (stage "dialect") that
/// names the node if that is not known.
Expr peer_of(const Node& node);

/// Whether others read the operand of the group's member `member`.
bool gives(const spmd::CollectiveAttributes& collective, size_t member);

/// Throws a user error (stage "dialect") that names the node and the fix: for an operator that does not exist, too many
/// or too few operands, and whatever read_collective() refuses.
void check_node(const Node& node, const Mesh& mesh);

/// Sets the types of the results; operands' types, and the elements of Recv's shape, must be known. Contents of RankId,
/// AxisIndex and Neighbor are expressions over axis indices. Throws a user error that names the node.
void infer_node(Node& node, const Mesh& mesh);

}  // namespace tessera::dialect

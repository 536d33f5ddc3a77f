#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

/// The operators of domain tessera.comm, version 1, in one table: what docs/dialect.md says in words.
///
/// A *group* is the ranks that differ only along a node's `axes`; *members* are numbered from 0, row-major in the order
/// of the axes. A *rank* is a number of the whole mesh. Where a program orders communication by tokens, every operator
/// that communicates has one more operand and one more result than its schema says, both last: int64 scalars.
namespace tessera::dialect {

enum class AttributeKind { integer, integers, text, texts };

struct AttributeSchema {
  std::string_view name;
  AttributeKind kind;
  bool required;
};

struct Schema {
  std::string_view op;
  std::vector<std::string_view> operands;  ///< without the token
  std::vector<std::string_view> optional;  ///< operands after those, of operators that do not communicate
  std::vector<std::string_view> results;   ///< without the token
  std::vector<AttributeSchema> attributes;
  std::optional<comm::Kind> kind;  ///< of what it does with other ranks, so that its order counts; none: nothing
  /// Sets the results' types from the operands'.
  void (*infer)(Node& node, const Mesh& mesh);
};

/// On every communicating node of a program without tokens: its order is its place ("position").
inline constexpr std::string_view kOrderAttribute = "order";

/// The opaque type of a handle of a rank.
inline constexpr std::string_view kRankType = "Rank";

/// Every operator, in the order of docs/dialect.md.
const std::vector<Schema>& schemas();
/// Null if the dialect has no operator of that name.
const Schema* find_schema(std::string_view op);
/// What a node of the dialect communicates; nullopt for all other nodes.
std::optional<comm::Kind> kind_of(const Node& node);
/// Whether the node is one of the dialect's that communicate.
bool communicates(const Node& node);

// What a node says of itself. User errors (stage "dialect") that name the node.

/// "sum", "max", "min" or "mean"; nullopt for what is none.
std::optional<Reduction> reduction_named(std::string_view name);
/// Its attribute `reduction`; sum if it has none.
Reduction reduction_of(const Node& node);
/// A member's extent that the attribute states, over that member's axis indices; else `otherwise`, from a shape whose
/// extents are those of any rank.
Expr stated_extent(const Node& node, std::string_view attribute, const Expr& otherwise);
/// The rank that a Send or Recv names, over axis indices; -1 is nobody.
Expr peer_of(const Node& node);

/// Whether others read the operand of the group's member `member`; of other nodes than communication, false.
bool gives(const Node& node, size_t member);

/// Throws a user error (stage "dialect") that names the node and the mend: an operator, attribute or axis that does not
/// exist, an attribute of the wrong type or left out, operands too many or missing, a root or target outside the group,
/// a dimension out of range.
void check_node(const Node& node, const Mesh& mesh);

/// Sets the types of the results; operands' types, and the elements of Recv's shape, must be known. Contents of RankId,
/// AxisIndex and Neighbor are expressions over axis indices. Throws a user error that names the node.
void infer_node(Node& node, const Mesh& mesh);

}  // namespace tessera::dialect

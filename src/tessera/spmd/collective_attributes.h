#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/collective.h"
#include "tessera/ir/expr.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/reduction.h"
#include "tessera/mesh/mesh.h"
#include "tessera/spmd/attribute_schema.h"

/// The attributes of a communication node (domain tessera.comm). All code that makes, lowers, writes, proves or runs
/// such nodes reads and writes them here. docs/dialect.md describes the attributes in words.
namespace tessera::spmd {

/// Collectives with the same number in this attribute start as one: their bytes travel together. The numbers have no
/// other meaning.
inline constexpr std::string_view kBucketAttribute = "bucket";

/// Which attributes an operator has follows from its traits (ir/collective.h): one that reduces has a reduction, one
/// with a root has a root, and so on. The other fields keep their defaults.
struct CollectiveAttributes {
  Collective kind = Collective::barrier;  ///< the operator
  std::vector<std::string> axes;          ///< the group: the ranks that differ only along these, in row-major order
  std::string value;                      ///< name of the global value that moves; "": not stated
  std::string step;                       ///< the step of a lowered collective that this message belongs to; "": none
  DType dtype = DType::undefined;         ///< element type of a Recv's result
  Reduction reduction = Reduction::sum;
  int64_t root = 0;              ///< the member that sends to all others, or receives from them
  int64_t dim = -1;              ///< the dimension along which members have blocks
  int64_t split_dim = -1;        ///< the dimension along which an AllToAll splits its operand
  int64_t concat_dim = -1;       ///< the dimension along which an AllToAll joins its result
  std::vector<int64_t> targets;  ///< of a Permute: the member that each member sends to; -1: none
  /// A member's extent in `dim` of its block, in `split_dim` of its result and in `concat_dim` of its operand, over
  /// that member's axis indices; stated where shapes are bound to one rank.
  std::optional<Expr> extent, split_extent, concat_extent;
  std::optional<int64_t> bucket;  ///< the bucket whose collectives start together

  bool operator==(const CollectiveAttributes&) const = default;
};

/// The kind of a communication node; nullopt for all other nodes.
std::optional<Collective> communication_of(const Node& node);

/// The attributes that an operator may have, in the order in which they are written.
std::span<const AttributeSchema> attributes_of(Collective kind);

/// Reads a communication node's attributes. Throws a user error (stage "dialect") that names the node, the attribute
/// and the fix if an attribute is missing, unknown to the operator or of the wrong type; if a reduction, an element
/// type or an expression is invalid; or if the operand, where its shape is known, lacks the dimension.
CollectiveAttributes read_collective(const Node& node);
/// The same; also throws if an axis is not in the mesh, or a root or target is outside the group.
CollectiveAttributes read_collective(const Node& node, const Mesh& mesh);

/// Writes the attributes: read_collective() of a node with the result returns `attributes`.
std::vector<Attribute> written(const CollectiveAttributes& attributes);

/// The extents of any member's blocks: those that the node states, else those of its operand and result.
struct MemberExtents {
  Expr block;          ///< in `dim`
  Expr split, concat;  ///< in `split_dim` of the result and `concat_dim` of the operand
};
MemberExtents member_extents(const CollectiveAttributes& attributes, const Node& node);

/// "sum", "max", "min" or "mean"; nullopt for any other name.
std::optional<Reduction> reduction_named(std::string_view name);

}  // namespace tessera::spmd

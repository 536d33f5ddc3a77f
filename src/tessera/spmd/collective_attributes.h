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

/// What a communication node of domain tessera.comm says in its attributes, read and written in one place for all who
/// make, lower, write, prove or run such nodes. docs/dialect.md describes the attributes in words.
namespace tessera::spmd {

/// Collectives with the same number in this attribute start as one: their bytes travel together. The numbers have no
/// other meaning.
inline constexpr std::string_view kBucketAttribute = "bucket";

/// Which of them an operator has follows from its traits (ir/collective.h): one that reduces has a reduction, one with
/// a root a root, and so on. The others keep their defaults.
struct CollectiveAttributes {
  Collective kind = Collective::barrier;  ///< the operator
  std::vector<std::string> axes;          ///< the group: the ranks that differ only along these, in row-major order
  std::string value;                      ///< the global value that moves; "": the node does not say
  std::string step;                       ///< of a message: which of a lowered collective's; "": it is no step of one
  DType dtype = DType::undefined;         ///< of a Recv: the type that arrives
  Reduction reduction = Reduction::sum;
  int64_t root = 0;              ///< the member that alone gives, or gets
  int64_t dim = -1;              ///< along which members have blocks
  int64_t split_dim = -1;        ///< of an AllToAll: along which operands are cut
  int64_t concat_dim = -1;       ///< of an AllToAll: along which results are joined
  std::vector<int64_t> targets;  ///< of a Permute: the member to which each member sends; -1: to nobody
  /// A member's extent in `dim` of its block, in `split_dim` of its result and in `concat_dim` of its operand, over
  /// that member's axis indices; stated where shapes are bound to one rank.
  std::optional<Expr> extent, split_extent, concat_extent;
  std::optional<int64_t> bucket;  ///< in which it starts with others

  bool operator==(const CollectiveAttributes&) const = default;
};

/// The kind of a communication node; nullopt for all other nodes.
std::optional<Collective> communication_of(const Node& node);

/// The attributes that an operator may have, in the order in which they are written.
std::span<const AttributeSchema> attributes_of(Collective kind);

/// What a communication node says. Throws a user error (stage "dialect") that names the node, the attribute and the
/// fix: for an attribute that the operator does not have, that is missing, or that has another type; for a reduction,
/// an element type or an expression that does not exist; for dimensions that the operand does not have, where its shape
/// is known.
CollectiveAttributes read_collective(const Node& node);
/// The same; throws also for an axis that is not in the mesh, and for a root or targets outside of the group.
CollectiveAttributes read_collective(const Node& node, const Mesh& mesh);

/// The attributes of a node that says this: read_collective() returns `attributes` for it.
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

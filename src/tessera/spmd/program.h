#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/sharding.h"

namespace tessera::spmd {

/// The domain of communication nodes, and of our own local operators.
inline constexpr std::string_view kCommDomain = "tessera.comm";
inline constexpr std::string_view kLocalDomain = "tessera";

inline constexpr std::string_view kExtentAttribute = "extent";
inline constexpr std::string_view kSplitExtentAttribute = "split_extent";
inline constexpr std::string_view kConcatExtentAttribute = "concat_extent";

/// What a local value stands for: the global tensor and how it is laid over the mesh.
struct Placement {
  std::string name;  ///< of the global value
  TensorType global;
  Sharding sharding;
};

/// A graph input or output of a Program.
struct Port {
  std::string name;
  Value* value = nullptr;  ///< local; null in a rank's program, of an output that lives elsewhere
};

/// Two extents that an operator takes to be equal although their expressions differ (two inputs with symbols of their
/// own that are added, say). Checked when sizes are bound: shards might agree by accident.
struct ExtentEquality {
  Expr a, b;
  std::string node;         ///< label, for the message
  bool broadcasts = false;  ///< the operator also takes one of them to be 1
};

/// A layout change that the partitioner had to insert.
struct ReshardRecord {
  std::string value;     ///< the global value
  std::string consumer;  ///< label of the node (or output) that asked for it
  Sharding from, to;
  std::vector<std::string> steps;  ///< "AllReduce tp", "Slice", ...
  Expr bytes;                      ///< that one rank receives
};

/// A collective that was read as a call of a function over Send and Recv, whose nodes are in the graph in its place.
struct LoweredCollective {
  std::shared_ptr<const Node> statement;   ///< the collective, without operands
  std::string operand;                     ///< value of the graph; "": none
  std::optional<Placement> before, after;  ///< of its operand and its result, where these stand for a global value
  std::string flaw;                        ///< why the function is not known to compute it; "": it does
};

/// Where a program that was read is not what was written.
struct Departure {
  std::string node;  ///< "MatMul 'q'"; "" where no node tells
  std::string why;
};

/// One SPMD program for all ranks of a mesh. Values of `graph` are local: their shapes are expressions over symbols and
/// axis indices (`@tp`). Communication is nodes of domain tessera.comm with attributes
///   axes (strings: the group is the ranks that differ only along them, members row-major in the order written),
///   dim (AllGather, ReduceScatter), split_dim and concat_dim (AllToAll), reduction ("sum", "max", "min"),
///   value (name of the global value that moves),
///   root (a member: Broadcast, Reduce, Gather, Scatter), targets (members: Permute).
/// Blocks' counts follow from the local extents of the operand (AllGather) or result (ReduceScatter) on each member.
/// Where shapes are bound to one rank (a written program), a node says in attributes what follows from shapes here:
///   extent (of dim on a member), split_extent and concat_extent (of split_dim in the result, of concat_dim in the
///   operand), as expressions over axis indices.
/// A value whose sharding has a place (Sharding::at) exists on the ranks there, and with it the node that makes it; a
/// communication is run by the whole group of the ranks where its result lives. What one rank runs of it is
/// `specialize`. There, what communicates has no operand (null) where the rank has nothing to give, and an output that
/// the rank has no part of is a port without a value.
struct Program {
  Mesh mesh;
  std::unique_ptr<Graph> graph;
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  std::map<const Value*, Placement> placements;       ///< of every local value that stands for a global one
  std::map<const Value*, Tensor> initial;             ///< whole initial data of states; a rank loads its shard of it
  std::map<std::string, int64_t, std::less<>> hints;  ///< symbol values that choices by cost assumed
  std::vector<ReshardRecord> reshards;
  std::vector<ExtentEquality> equal_extents;
  std::shared_ptr<const std::vector<LoweredCollective>> lowered;  ///< of a program that was read; else null
  bool as_written = false;                                        ///< it was read, and is what was proved and written
  std::optional<Departure> departure;                             ///< it was read, and is not

  /// Of a value that stands for a global one; an internal error for others.
  const Placement& placement(const Value* value) const { return placements.at(value); }
};

/// The layouts in which nodes, outputs and next values take the global value of that name, in order of first use.
/// Layout changes do not count.
std::vector<std::string> layouts_in_use(const Program& program, std::string_view name);

/// Removes nodes whose results are not used, and what is said of values that are gone.
void erase_dead(Program& program);

/// The value of an expression with symbols bound by `hints` (16 where a symbol has none), on the first rank.
double hinted(const Expr& expr, const std::map<std::string, int64_t, std::less<>>& hints);

}  // namespace tessera::spmd

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/sharding.h"

namespace tessera::spmd {

/// The domain of communication nodes, and the one of Tessera's own local operators.
inline constexpr std::string_view kCommDomain = "tessera.comm";
inline constexpr std::string_view kLocalDomain = "tessera";

inline constexpr std::string_view kExtentAttribute = "extent";
inline constexpr std::string_view kSplitExtentAttribute = "split_extent";
inline constexpr std::string_view kConcatExtentAttribute = "concat_extent";

/// The global tensor that a local value stands for, and its layout over the mesh.
struct Placement {
  std::string name;  ///< of the global value
  TensorType global;
  Sharding sharding;
  std::optional<StateOrigin> origin = {};  ///< of a state that is a piece of a parameter
};

/// A graph input or output of a Program.
struct Port {
  std::string name;
  Value* value = nullptr;  ///< local; null in a rank's program if the output lives elsewhere
};

/// Two extents that an operator assumes to be equal although their expressions differ (for example, of two added inputs
/// with symbols of their own). They are checked when sizes are bound, since shards might agree by accident.
struct ExtentEquality {
  Expr a, b;
  std::string node;         ///< label, for the message
  bool broadcasts = false;  ///< the operator also allows one of them to be 1
};

/// A layout change that the partitioner inserted.
struct ReshardRecord {
  std::string value;     ///< the global value
  std::string consumer;  ///< label of the node (or output) that needs it
  Sharding from, to;
  std::vector<std::string> steps;  ///< "AllReduce tp", "Slice", ...
  Expr bytes;                      ///< received by one rank
  std::string reason;              ///< why the consumer needs a split value whole (why.h); "" if it does not
};

/// A collective that the file states as a call of a function over Send and Recv. The function's nodes replace it in the
/// graph.
struct LoweredCollective {
  std::shared_ptr<const Node> statement;   ///< the collective, without operands
  std::string operand;                     ///< value of the graph; "": none
  std::optional<Placement> before, after;  ///< of its operand and its result, where these stand for a global value
  std::string flaw;                        ///< why the function was not proved to compute it; "": it was
};

/// The first place where a program that was read differs from the one that was written.
struct Departure {
  std::string node;  ///< "MatMul 'q'"; "" if it is not at a node
  std::string why;
};

/// One SPMD program for all ranks of a mesh: its states, what runs once (init), and what runs in every step. Values of
/// `graph` are local: their shapes are expressions over symbols and axis indices (`@tp`). Communication is nodes of
/// domain tessera.comm with attributes
///   axes (strings: the group is the ranks that differ only along them, members row-major in the order written),
///   dim (AllGather, ReduceScatter), split_dim and concat_dim (AllToAll), reduction ("sum", "max", "min"),
///   value (name of the global value that moves),
///   root (a member: Broadcast, Reduce, Gather, Scatter), targets (members: Permute).
/// Blocks' counts follow from the local extents of the operand (AllGather) or result (ReduceScatter) on each member.
/// If shapes are bound to one rank (a written program), a node states in attributes what otherwise follows from shapes:
///   extent (of dim on a member), split_extent and concat_extent (of split_dim in the result, of concat_dim in the
///   operand), as expressions over axis indices.
/// A value whose sharding has a place (Sharding::at) exists on the ranks there, and so does the node that makes it; the
/// whole group of the ranks where its result lives runs a communication. `specialize` gives the program of one rank. In
/// it, a communication to which the rank gives nothing has no operand (null), and an output of which the rank has no
/// part is a port without a value.
struct Program {
  Mesh mesh;
  std::unique_ptr<Graph> graph;  ///< the step
  /// Runs once, before the first step, without communication; its outputs are states of the step
  /// (spmd/partition/init.h). Null: there is nothing to do.
  std::unique_ptr<Graph> init;
  std::map<const Value*, const Value*> derived;  ///< states of the step that init makes: the outputs of init
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  std::unordered_map<const Value*, Placement>
      placements;                          ///< of every local value, init's too, that stands for a global one
  std::map<const Value*, Tensor> initial;  ///< whole initial data of states; a rank loads its shard of it
  std::map<std::string, int64_t, std::less<>> hints;  ///< symbol values that cost estimates assumed
  std::vector<ReshardRecord> reshards;
  std::vector<ExtentEquality> equal_extents;
  std::shared_ptr<const std::vector<LoweredCollective>> lowered;  ///< set for a program that was read
  bool as_written = false;             ///< it was read, and equals what was proved and written
  std::optional<Departure> departure;  ///< it was read, and differs from what was written

  /// The placement of a value that stands for a global one. Throws an internal error for other values.
  const Placement& placement(const Value* value) const { return placements.at(value); }
  /// The name of the global value that a value stands for; its own, if it stands for none.
  const std::string& name_of(const Value* value) const {
    const auto found = placements.find(value);
    return found == placements.end() ? value->name : found->second.name;
  }
};

/// For each global value, the layouts in which nodes and outputs use it, in order of first use; layout changes are not
/// uses.
std::map<std::string, std::vector<std::string>> layouts_in_use(const Program& program);

/// Graph::verify of both graphs. Throws an internal error also for a record of a value that is in neither.
void verify(const Program& program, std::string_view stage);

/// Removes nodes whose results are unused, with `states` also unused states, and the records of removed values.
void erase_dead(Program& program, bool states = false);

/// The value of an expression with symbols bound by `hints` (16 if a symbol has none), on the first rank.
double hinted(const Expr& expr, const std::map<std::string, int64_t, std::less<>>& hints);

}  // namespace tessera::spmd

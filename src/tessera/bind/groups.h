#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/kernels/library.h"

/// How a program's nodes are assigned to kernels. The device's library says which nodes a kernel takes over
/// (Library::fuse), in which layouts, and which results may be views; the passes here decide for the whole graph. Of
/// the values within a group, only those that other groups read are stored. Convolution networks stay in blocks of
/// channels from end to end. Reshapes, transposes and splits are views if their readers support the views' strides.
namespace tessera::bind {

/// Nodes that one kernel runs, or collectives that start as one, at the place of the last of them.
struct NodeGroup : kernels::Fusion {
  /// Collectives of the root's bucket, the root first: operand and result i are those of collective i. Else empty.
  std::vector<const Node*> bucket = {};
};

/// Whether result `result` of an element-wise group may be made in the memory of operand `operand`: no node after the
/// one that makes it reads the operand.
bool is_read_before(const NodeGroup& group, size_t operand, size_t result);

/// A value in the memory of another one.
struct Alias {
  const Value* base = nullptr;  ///< it has memory of its own
  int64_t offset = 0;           ///< elements of the base before it
  Dims strides;                 ///< in elements; empty: row-major
};

/// What a rank knows about a program's values before it runs.
using Bound = kernels::BoundValues;

/// Places views again for other extents, if the groups stay the same.
class Regrouping {
 public:
  virtual ~Regrouping() = default;
  /// The views that were placed again because they depend on a value in `changed`: all values whose extents, or
  /// elements of expressions, differ from those that the groups were made for. Nullopt if the new extents lead to other
  /// groups or other views. Only one thread at a time may call this.
  virtual std::optional<std::map<const Value*, Alias>> views(const std::vector<const Value*>& changed,
                                                             const Bound& values) = 0;
};

struct Grouping {
  std::vector<NodeGroup> groups;            ///< in running order
  std::map<const Value*, int64_t> blocked;  ///< values in blocks, with their TensorDesc::block
  std::map<const Value*, Alias> views;      ///< values without memory of their own
  std::shared_ptr<Regrouping> again = {};   ///< null after single_nodes; lives as long as the graph at most
};

/// The groups of a rank's program. Every node is in a group, except nodes whose results are views, and nodes whose
/// results no reader's kernel needs (Fusion::spared). User errors name the node.
Grouping group_nodes(const Graph& graph, const Bound& values, const kernels::Library& library);

/// Each node alone and all values row-major, with views of whole values only: for reading every value after a run.
Grouping single_nodes(const Graph& graph, const Bound& values, const kernels::Library& library);

}  // namespace tessera::bind

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/kernels/packing.h"

/// How a program's nodes are dealt to kernels: a matrix product or convolution takes over the element-wise nodes that
/// follow it, and what lies between is never stored; convolution networks stay in blocks of channels from end to end.
namespace tessera::kernels {

/// Nodes that one kernel runs, in the place of the last of them.
struct NodeGroup {
  const Node* root = nullptr;  ///< of the program, or `own`
  std::vector<Follower> followers;
  std::vector<Value*> inputs;  ///< the root's operands, then the followers' other ones
  std::vector<Value*> outputs;
  std::shared_ptr<const Node> own = {};     ///< a root that reads its weight before a Transpose
  std::optional<PackedLayout> packed = {};  ///< of operand 1, where it is a weight that this machine packs
};

struct Grouping {
  std::vector<NodeGroup> groups;            ///< in running order
  std::map<const Value*, int64_t> blocked;  ///< values that lie in blocks, by TensorDesc::block
};

/// Types of values on bound extents, row-major.
using DescOf = std::function<TensorDesc(const Value*)>;

/// The groups of a rank's program. Every node is in one, but Transposes of weights whose readers do without.
Grouping group_nodes(const Graph& graph, const DescOf& desc_of);

/// Each node alone, all values row-major: for reading every value after a run.
Grouping single_nodes(const Graph& graph, const DescOf& desc_of);

}  // namespace tessera::kernels

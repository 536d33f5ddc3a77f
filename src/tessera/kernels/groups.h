#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/kernels/packing.h"

/// How a program's nodes are dealt to kernels: a matrix product or convolution takes over the element-wise nodes that
/// follow it, other element-wise nodes go through memory together, and what lies between is never stored; convolution
/// networks stay in blocks of channels from end to end; reshapes, transposes and splits are views where their readers
/// can step as they say.
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

/// A value that lies in the memory of another one.
struct Placed {
  const Value* base = nullptr;  ///< itself in no other's
  int64_t offset = 0;           ///< elements of the base before it
  Dims strides;                 ///< in elements; empty: row-major
};

/// Types of values on bound extents, row-major.
using DescOf = std::function<TensorDesc(const Value*)>;

/// What a rank knows of a program's values before it runs.
struct Bound {
  DescOf desc;
  std::function<std::optional<std::vector<int64_t>>(const Value*)> ints;  ///< elements of constants and expressions
};

/// Where views lie at other extents, if groups stay the same there.
class Regrouping {
 public:
  virtual ~Regrouping() = default;
  /// The views that were looked at anew, because what decided them is among `changed`: all values whose extents, or
  /// elements of expressions, differ from those that the groups were made for. None: at these extents there would be
  /// other groups, or other values would be views. Not for several threads at a time.
  virtual std::optional<std::map<const Value*, Placed>> views(const std::vector<const Value*>& changed,
                                                              const Bound& values) = 0;
};

struct Grouping {
  std::vector<NodeGroup> groups;            ///< in running order
  std::map<const Value*, int64_t> blocked;  ///< values that lie in blocks, by TensorDesc::block
  std::map<const Value*, Placed> views;     ///< values without memory of their own
  std::shared_ptr<Regrouping> again = {};   ///< null after single_nodes; lives as long as the graph at most
};

/// The groups of a rank's program. Every node is in one, but those whose results are views, and Transposes of weights
/// whose readers do without. User errors name the node.
Grouping group_nodes(const Graph& graph, const Bound& values);

/// Each node alone, all values row-major; views are only those of whole values. For reading every value after a run.
Grouping single_nodes(const Graph& graph, const Bound& values);

}  // namespace tessera::kernels

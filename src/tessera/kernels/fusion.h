#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/kernels/kernel.h"
#include "tessera/kernels/packing.h"
#include "tessera/kernels/view.h"

/// How nodes of a graph are assigned to a library's kernels.
namespace tessera::kernels {

/// Nodes that one kernel runs.
struct Fusion {
  const Node* root = nullptr;  ///< of the program, or `own`
  std::vector<Follower> followers;
  std::vector<Value*> inputs;               ///< the root's operands, then the followers' other ones
  std::vector<Value*> outputs;              ///< as result_of_member() says (library.h); null: not stored
  std::shared_ptr<const Node> own = {};     ///< a root that reads other values than the program's node
  std::optional<PackedLayout> packed = {};  ///< of operand 1, if it is a weight that this machine packs
  std::vector<const Node*> spared = {};     ///< nodes whose results this kernel has no use for, though the root has
};

/// Types of values on bound extents, row-major.
using TypeOf = std::function<TensorDesc(const Value*)>;

/// A graph as a library sees it that decides which nodes a kernel runs.
class Surroundings {
 public:
  virtual ~Surroundings() = default;

  virtual TensorDesc type(const Value* value) const = 0;
  /// Whether no other kernel runs the node.
  virtual bool is_free(const Node& node) const = 0;
  /// Whether one runs as often as the other: neither is in a branch or loop in which the other is not.
  virtual bool run_together(const Node& a, const Node& b) const = 0;
  /// Whether the value is read after the run, so that it must be stored.
  virtual bool is_kept(const Value* value) const = 0;
  /// The number of the node in running order.
  virtual size_t position(const Node& node) const = 0;
};

/// How a kernel goes with blocks of channels (TensorDesc::block).
struct BlockUse {
  bool gives = false;         ///< its results may be in blocks
  std::vector<bool> takes;    ///< by operand: it may be in blocks
  std::vector<size_t> alike;  ///< operands that are in blocks where the results are, and only there
};

/// Whether a node's results may be views of its operand 0.
enum class ViewKind : uint8_t {
  none,
  permutation,  ///< a view whose dimensions change places
  other,        ///< another view
};

/// What is known about values before a run.
struct BoundValues {
  TypeOf type;
  std::function<std::optional<std::vector<int64_t>>(const Value*)> ints;  ///< elements of constants and expressions
};

}  // namespace tessera::kernels

#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::kernels {

struct View;  // view.h

/// A bound tensor: element type and extents as numbers. Dense and row-major, in blocks of channels, or strided.
struct TensorDesc {
  DType dtype = DType::undefined;  ///< undefined: an absent optional operand or result
  Dims dims;
  /// 0: row-major. Else [n, c, d…] is stored as [n, c / block, d…, block], with channels padded by zeros to whole
  /// blocks. Only kernels of groups (groups.h) see this.
  int64_t block = 0;
  /// Elements from one index to the next along each dimension; empty: row-major. Only operands and results that the
  /// kernel's registration names, and operands of groups of element-wise nodes, may be strided.
  Dims strides = {};

  bool present() const { return dtype != DType::undefined; }
  int64_t count() const { return count_of(dims); }
  /// The extents in memory: [n, c / block, d…, block] if there are blocks.
  Dims stored_dims() const;
  size_t bytes() const { return bytes_of(dtype, block ? count_of(stored_dims()) : count()); }
  int rank() const { return static_cast<int>(dims.size()); }
};

/// An element-wise node that the kernel of a group runs.
struct Follower {
  const Node* node;
  /// Where each operand of the node is: i ≥ 0 is operand i of the kernel, ~j the result of node j of the group, whose
  /// root is node 0 and whose first follower node 1.
  std::vector<int> operands;

  /// The kernel's operand that the node reads; -1: none.
  int other() const;
};

/// The input of a kernel's preparation: a node whose operands' and results' extents are all known.
struct PrepareContext {
  const Node& node;
  std::vector<TensorDesc> inputs;
  std::vector<TensorDesc> outputs;
  /// Per operand: its elements, if they are known now and will not change (constants, bound expressions, states without
  /// a next value); else null.
  std::vector<const void*> known;
  int threads = 1;  ///< OpenMP team of the rank that will run it
  /// The nodes that come after `node` in its group: outputs are as result_of_member() says (library.h).
  std::vector<Follower> followers = {};

  bool has_input(size_t index) const { return index < inputs.size() && inputs[index].present(); }
  bool has_output(size_t index) const { return index < outputs.size() && outputs[index].present(); }
  /// A known integer operand as int64; a user error naming the node if it is not known.
  std::vector<int64_t> known_ints(size_t index) const;
};

/// Pointers for one run, in the node's order; null for absent operands and results. A result may be at its operand's
/// address if the kernel's registration allows it. Extents may be zero: then the kernel writes nothing, or a
/// reduction's identity.
struct KernelArgs {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  void* scratch = nullptr;  ///< scratch_bytes() bytes, 64-byte aligned
  /// The queue's handle in the device's library, on which a kernel enqueues its work; null on a CPU, where it computes
  /// at once.
  void* stream = nullptr;

  template <typename T>
  const T* in(size_t index) const {
    return static_cast<const T*>(inputs[index]);
  }
  template <typename T>
  T* out(size_t index = 0) const {
    return static_cast<T*>(outputs[index]);
  }
};

/// A prepared operator: all decisions made, nothing left but to compute. run() allocates nothing and takes no lock.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual size_t scratch_bytes() const { return 0; }
  /// An operand whose memory the result should take over, since the kernel copies it otherwise. -1: none.
  virtual int in_place_operand() const { return -1; }
  virtual void run(const KernelArgs& args) = 0;
};

/// Throws a user error naming the operator and the dtype if this kernel does not compute it.
using KernelFactory = std::unique_ptr<Kernel> (*)(const PrepareContext&);

struct PackedLayout;

struct KernelEntry {
  std::string_view op_type;
  std::string_view domain;
  KernelFactory prepare;
  /// Operands whose memory the first result may take over if it has the same byte size and this is their last reader.
  std::vector<int> in_place;
  /// The first result is the first operand's bytes under another shape; unless both are needed, nothing runs.
  bool view = false;
  /// Operands and results may be in blocks (TensorDesc::block); other kernels are told the extents as stored.
  bool blocks = false;
  /// Operands that may be strided, though not along the last dimension, unless takes_strided says more.
  std::vector<int> strided = {};
  /// Whether an operand among `strided`, or the first result (-1), may be strided as the view is, and no matter along
  /// which dimension; null: the rule above.
  bool (*takes_strided)(const Node& node, int operand, const View& view) = nullptr;
  /// The first result may be strided as a dense tensor is whose dimensions change places, though not along its last
  /// dimension unless takes_strided says more; then it is in no operand's memory.
  bool strides_result = false;
  /// Each element of the one result comes from the operands' elements that numpy's broadcasting pairs with it.
  bool elementwise = false;
  /// The form in which the operator wants operand 1, of type `weight`, if that is a weight (packing.h); nullopt: as it
  /// is. Null: always as it is.
  std::optional<PackedLayout> (*pack)(const Node& node, const TensorDesc& weight) = nullptr;
};

/// The CPU's kernel for an operator; null if there is none.
const KernelEntry* find_kernel(std::string_view op_type, std::string_view domain);

/// The kernel of a group, or of a node alone: `entry` is that of the root.
std::unique_ptr<Kernel> prepare_kernel(const KernelEntry& entry, const PrepareContext& context);

}  // namespace tessera::kernels

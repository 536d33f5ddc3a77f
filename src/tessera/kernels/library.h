#pragma once

#include "tessera/kernels/fusion.h"

namespace tessera::kernels {

/// The kernel's result that node `member` of a group of `members` nodes makes, if it is stored: the last node's comes
/// first, then those of the others in their order. Results that are not stored are absent.
constexpr size_t result_of_member(size_t member, size_t members) {
  return member + 1 == members ? 0 : member + 1;
}

/// What TensorDesc::block counts if there is one block of all channels.
constexpr int64_t all_channels = -1;

/// A device's kernels, as the passes see them that bind a program to the device: what there is, which nodes one kernel
/// runs, and in which layouts. An answer depends on the arguments alone.
class Library {
 public:
  virtual ~Library() = default;

  /// Null: there is no kernel for the operator.
  virtual const KernelEntry* find(std::string_view op_type, std::string_view domain) const = 0;
  /// The kernel of a group, or of a node alone: `entry` is that of the root.
  virtual std::unique_ptr<Kernel> prepare(const KernelEntry& entry, const PrepareContext& context) const = 0;

  /// The nodes that the kernel of `root` takes over: those that follow it, one after the other, or what makes its
  /// operands and is read by it alone. The kernel runs at the place of the last of them. A library without such kernels
  /// gives the root alone.
  virtual Fusion fuse(const Node& root, const Surroundings& around) const = 0;
  /// The nodes that go through memory together with `last`, which is the last of them: what makes its operands, and
  /// theirs. Nothing beside them reads their results before it. Alone, if `last` is not element-wise.
  virtual Fusion fuse_backward(const Node& last, const Surroundings& around) const = 0;

  /// How the kernel goes with tensors in blocks of channels.
  virtual BlockUse block_use(const Fusion& fusion, const TypeOf& type) const = 0;
  /// TensorDesc::block of a tensor of this type that is in blocks.
  virtual int64_t block_of(const TensorDesc& type) const = 0;

  /// Whether results of the node may be views of operand 0, for which nothing runs.
  virtual ViewKind view_kind(const Node& node) const = 0;
  /// Result `index` of such a node, where `operand` is its operand 0; nullopt: it needs memory of its own.
  virtual std::optional<View> view_by(const Node& node, size_t index, const View& operand,
                                      const BoundValues& values) const = 0;
  /// Whether the kernel can read operand `index` of `reader`, one of its nodes, where it is strided as the view is.
  virtual bool takes_view(const Fusion& fusion, const Node& reader, size_t index, const View& view,
                          const TypeOf& type) const = 0;
  /// Whether the kernel can write its result strided as some view, and as this one.
  virtual bool can_give_views(const Fusion& fusion) const = 0;
  virtual bool gives_view(const Fusion& fusion, const View& view) const = 0;
};

/// The CPU's.
const Library& cpu_library();

}  // namespace tessera::kernels

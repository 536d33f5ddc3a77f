#pragma once

#include "tessera/kernels/kernel.h"
#include "tessera/kernels/packing.h"

namespace tessera::kernels {

/// The kernel's result that node `member` of a group of `members` nodes makes, if it is stored: the last node's comes
/// first, then those of the others in their order. Results that are not stored are absent.
constexpr size_t result_of_member(size_t member, size_t members) {
  return member + 1 == members ? 0 : member + 1;
}

/// What Library::channel_block() gives for a block of as many channels as there are.
constexpr int64_t all_channels = -1;

/// A device's kernels, as the passes see them that bind a program to the device: what there is, and which nodes one
/// kernel can take together. An answer depends on the arguments alone.
class Library {
 public:
  virtual ~Library() = default;

  /// Null: there is no kernel for the operator.
  virtual const KernelEntry* find(std::string_view op_type, std::string_view domain) const = 0;
  /// The kernel of a group, or of a node alone: `entry` is that of the root.
  virtual std::unique_ptr<Kernel> prepare(const KernelEntry& entry, const PrepareContext& context) const = 0;

  /// The packed form of `node`'s operand 1, of type `weight`; nullopt if the plain form is as good. Only the operators
  /// of domain "" and the MatMul of domain "tessera" have packed forms.
  virtual std::optional<PackedLayout> packed_layout(const Node& node, const TensorDesc& weight) const = 0;

  /// Whether matrix products and convolutions of the type can end with followers.
  virtual bool has_epilogues(DType dtype) const = 0;
  /// Whether the node can be such a follower at all.
  virtual bool can_follow(const Node& node) const = 0;
  /// Whether the follower needs an operand beside the result that it follows.
  virtual bool takes_operand(const Node& follower) const = 0;
  /// Whether the follower maps zeros to zero, so that padding stays padding.
  virtual bool keeps_zero(const Node& follower) const = 0;

  /// Whether the node can follow a product of integers, or another such follower, whose result it reads as operand
  /// `index`. Its other operands must be one number each, or a list along the product's columns or channels.
  virtual bool can_follow_sums(const Node& node, size_t index) const = 0;
  /// The nodes that can follow a convolution of integers whose codes these are, all or none: those that add the codes
  /// to others, the first two of which dequantize. Empty if what reads the codes is something else.
  virtual std::vector<const Node*> sum_after_codes(const Value& codes) const = 0;

  /// Whether the node can go through memory together with other element-wise nodes.
  virtual bool can_group(const Node& node) const = 0;
  /// Whether this pays: for nodes whose result has extents `result`, and which read operands of these types.
  virtual bool has_long_rows(const Node& root, const Dims& result, const std::vector<TensorDesc>& operands) const = 0;

  /// TensorDesc::block that convolutions of the type want; 0 if they want none, all_channels if their channels come
  /// last.
  virtual int64_t channel_block(DType dtype) const = 0;
  /// Whether the pooling takes and gives tensors in blocks.
  virtual bool pools_in_blocks(const Node& node, const TensorDesc& operand, const TensorDesc& result) const = 0;
};

/// The CPU's.
const Library& cpu_library();

}  // namespace tessera::kernels

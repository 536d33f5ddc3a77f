#pragma once

#include <optional>
#include <string>

#include "tessera/kernels/kernel.h"

/// Weights in the layout that this machine's matrix and convolution kernels read fastest.
///
/// A pass rewrites an operator whose operand 1 is a State, on bound extents:
///
///     auto layout = packed_layout(node, weight);              // nullopt: leave the node as it is
///     packed = PackWeight(weight, layout->beside…)            // domain "tessera.cpu", layout->pack_attributes; gives
///                                                             // uint8[layout->bytes]; in `init`, or in `step` if
///                                                             // the State has a next value
///     node:    op_type = layout->op_type, domain = "tessera.cpu", operand 1 = packed, and layout->use_attributes
///              added to its attributes. The other operands and the results stay, but for those spared.
///
/// Nodes whose layouts of one State have the same `key` share one PackWeight. The form depends neither on the
/// activation's extents nor on the number of threads, so one form serves all sizes.
namespace tessera::kernels {

struct PackedLayout {
  size_t bytes = 0;
  std::string op_type;                 ///< "Packed" and the node's: "PackedMatMul", …
  std::string domain = "tessera.cpu";  ///< of this operator and of PackWeight
  std::vector<Attribute> pack_attributes;
  std::vector<Attribute> use_attributes;
  std::vector<size_t> beside = {};  ///< operands of the node that are packed with the weight
  std::vector<size_t> spared = {};  ///< those of them that the packed operator does not take
  std::string key;
};

/// Whether the value is a State that never changes, which may be packed.
bool is_weight(const Value* value);

/// The packed form of `node`'s operand 1, of type `weight`; nullopt if the plain form is as good. Only operators of
/// domain "", our MatMul and MatMulBlocks, and MatMulNBits have packed forms.
std::optional<PackedLayout> packed_layout(const Node& node, const TensorDesc& weight);

}  // namespace tessera::kernels

#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/kernels/kernel.h"

/// Weights in the layout that this machine's matrix and convolution kernels read fastest.
///
/// An operator whose operand 1 is a State is bound as another operator, on bound extents:
///
///     auto layout = packed_layout(node, weight);     // nullopt: leave the node as it is
///     auto pack = layout->prepare(operands, threads)  // a kernel: packed, uint8[layout->bytes], from the weight and
///                                                    // the operands `beside`
///     node:    op_type = layout->op_type, domain = layout->domain, operand 1 = packed, and layout->use_attributes
///              added to its attributes. The other operands and the results stay, but for those spared.
///
/// Nodes whose layouts of one State have the same `key` share one packed form. It depends neither on the activation's
/// extents nor on the number of threads, so one form serves all sizes.
namespace tessera::kernels {

struct PackedLayout {
  size_t bytes = 0;
  std::string op_type;                 ///< "Packed" and the node's: "PackedMatMul", …
  std::string domain = "tessera.cpu";  ///< of this operator
  std::vector<Attribute> use_attributes;
  std::vector<size_t> beside = {};  ///< operands of the node that are packed with the weight
  std::vector<size_t> spared = {};  ///< those of them that the packed operator does not take
  std::string key;
  /// The kernel that packs: its operands are the weight and those beside it, of these types; absent ones have none.
  std::function<std::unique_ptr<Kernel>(const std::vector<TensorDesc>& operands, int threads)> prepare;
};

/// Whether the value is a State that never changes, which may be packed.
bool is_weight(const Value* value);

/// The packed form of `node`'s operand 1, of type `weight`, that its kernel wants (KernelEntry::pack); nullopt if the
/// plain form is as good.
std::optional<PackedLayout> packed_layout(const Node& node, const TensorDesc& weight);

/// For KernelEntry::pack: a layout of so many bytes that depends on these of the node's attributes. Its operator reads
/// the weight's type from packed_weight_desc(), and the node's own from packed_operator().
PackedLayout new_packed_layout(const Node& node, const TensorDesc& weight, size_t bytes,
                               std::initializer_list<std::string_view> attributes);

/// The type and extents of the weight that a packed operator's operand 1 was packed from.
TensorDesc packed_weight_desc(const Node& node);
/// The operator that a packed operator stands for; that of any other node is its own.
std::string packed_operator(const Node& node);

}  // namespace tessera::kernels

#pragma once

#include <optional>
#include <string_view>

#include "tessera/kernels/cpu/quantized/block_weight.h"
#include "tessera/kernels/packing.h"

namespace tessera::kernels {

/// How an operator's operands hold a matrix in blocks: com.microsoft's MatMulNBits keeps a column's codes together, our
/// MatMulBlocks a row's. The addresses in `source` are still null.
struct BlockForm {
  BlockWeight weight;
  BlockSource source;
};

/// What goes with operand 1: scales, and zero points (undefined: none).
struct BlockScales {
  DType scale_type = DType::float32, zero_type = DType::undefined;
  bool single = false;  ///< one of each belongs to the whole matrix
};

/// The form of operand 1, of type `weight`. `node` has the attributes of `op_type`. Nullopt for other operators.
std::optional<BlockForm> block_form(const Node& node, std::string_view op_type, const TensorDesc& weight,
                                    const BlockScales& scales);

/// KernelEntry::pack of the same operators: codes are packed with scales and zero points, if these are known, too.
std::optional<PackedLayout> pack_block_product(const Node& node, const TensorDesc& weight);

/// The products themselves.
std::unique_ptr<Kernel> prepare_block_product(const PrepareContext& context);

}  // namespace tessera::kernels

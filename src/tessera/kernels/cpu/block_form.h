#pragma once

#include <optional>
#include <string_view>

#include "tessera/kernels/cpu/block_weight.h"

namespace tessera::kernels {

/// How an operator's operands hold a matrix in blocks: com.microsoft's MatMulNBits keeps a column's codes together, our
/// MatMulBlocks a row's. The addresses in `source` are still null.
struct BlockForm {
  BlockWeight weight;
  BlockSource source;
};

/// Of operand 1, of type `weight`, with scales and zero points (undefined: none) of these types. `node` has the
/// attributes of `op_type`. Nullopt for other operators.
std::optional<BlockForm> block_form(const Node& node, std::string_view op_type, const TensorDesc& weight,
                                    DType scale_type, DType zero_type);

/// The PackWeight kernel of such an operand: inputs the codes, scales and zero points.
std::unique_ptr<Kernel> prepare_pack_blocks(const PrepareContext& context, const BlockForm& form);

/// The products themselves.
std::unique_ptr<Kernel> prepare_block_product(const PrepareContext& context);

}  // namespace tessera::kernels

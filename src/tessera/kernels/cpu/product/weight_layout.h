#pragma once

#include <optional>

#include "tessera/kernels/cpu/library/onednn.h"
#include "tessera/kernels/kernel.h"

namespace tessera::kernels {

/// A weight's layout in memory before and after packing.
struct WeightLayout {
  DType stored = DType::undefined;  ///< element type of both; float32 for a 16-bit weight without native kernels
  onednn::Md plain;                 ///< as the model has it, seen as the primitive's operand (transposed by strides)
  onednn::Md packed;

  size_t bytes() const { return packed.get_size(); }
};

/// The type in which weights and activations of a type are computed: itself, float32 for 16-bit floats without native
/// kernels, undefined for types that oneDNN does not compute.
DType stored_type(DType dtype);

/// The layout of MatMul's operand [..., k, n] ([..., n, k] if transposed); leading dimensions become one batch
/// dimension, or none. Nullopt if packing gains nothing or the type has no such kernels.
std::optional<WeightLayout> matmul_weight_layout(DType dtype, const Dims& dims, bool transposed);

/// The layout of operand 1, of type `weight`, of a node with the attributes of `op_type` (MatMul, Gemm or Conv): the
/// operator itself, its packed form, or the PackWeight for it.
std::optional<WeightLayout> weight_layout(const Node& node, std::string_view op_type, const TensorDesc& weight);

/// The original type and extents of the packed operand of a Packed* node.
TensorDesc packed_weight_desc(const Node& node);

/// The PackWeight kernel: input the weight, output its packed form.
std::unique_ptr<Kernel> prepare_pack_weight(const PrepareContext& context);

}  // namespace tessera::kernels

#pragma once

#include <optional>

#include "tessera/kernels/cpu/library/onednn.h"
#include "tessera/kernels/packing.h"

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

/// The same of operand 1, of type `weight`, of a MatMul or Gemm, packed or not.
std::optional<WeightLayout> product_weight_layout(const Node& node, const TensorDesc& weight);

/// The packed form of operand 1, of type `weight`, that has this layout, which depends on these of the node's
/// attributes; nullopt if there is no layout.
std::optional<PackedLayout> packed_as(const std::optional<WeightLayout>& layout, const Node& node,
                                      const TensorDesc& weight, std::initializer_list<std::string_view> attributes);

/// KernelEntry::pack of MatMul and Gemm.
std::optional<PackedLayout> pack_product(const Node& node, const TensorDesc& weight);

}  // namespace tessera::kernels

#pragma once

#include <optional>

#include "tessera/kernels/cpu/quantized/integer_product.h"
#include "tessera/kernels/packing.h"

namespace tessera::kernels {

/// How an operator's operand 1 holds matrices of integers: a MatMulInteger one [k, n], or turned [n, k] (transB); a
/// ConvInteger one for each group, with rows as a window lies in memory if channels come last.
struct IntegerForm {
  IntegerWeight weight;  ///< one matrix
  int64_t groups = 1;
  int64_t taps = 1;     ///< of a convolution's windows
  bool turned = false;  ///< a column's elements are adjacent
  /// Behind each `line` rows, a kernel's last dimension with all its channels, come `filling` rows of zeros, if that
  /// lets a product read whole groups of four where windows lie.
  int64_t line = 1, filling = 0;

  /// The elements of a column, as the operand holds it.
  int64_t elements() const { return weight.k / (line + filling) * line; }
  size_t bytes() const { return static_cast<size_t>(groups * weight.bytes()); }
};

/// The form of a ConvInteger's operand 1, of type `weight`. Nullopt for convolutions of each channel alone, which
/// multiply no matrices.
std::optional<IntegerForm> integer_convolution_form(const Node& node, const TensorDesc& weight);

/// Scratch bytes of pack_integer_form().
size_t integer_form_scratch(const IntegerForm& form);
void pack_integer_form(const IntegerForm& form, DType dtype, const void* weight, std::byte* packed, void* scratch,
                       int threads);

/// KernelEntry::pack of MatMulInteger and ConvInteger.
std::optional<PackedLayout> pack_integer_product(const Node& node, const TensorDesc& weight);
std::optional<PackedLayout> pack_integer_convolution(const Node& node, const TensorDesc& weight);

}  // namespace tessera::kernels

#include "tessera/ir/aligned.h"

#include <algorithm>

namespace tessera {
namespace {

/// The alignment of an element's address, in bytes.
size_t alignment_of(DType dtype) {
  const size_t element = std::max<size_t>(1, static_cast<size_t>(bits_of(dtype)) / 8);
  return dtype == DType::complex64 || dtype == DType::complex128 ? element / 2 : element;
}

}  // namespace

bool is_aligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) % alignment_of(tensor.dtype) == 0;
}

Tensor aligned(Tensor tensor) {
  if (is_aligned(tensor)) return tensor;
  return Tensor::copy_of(tensor.dtype, std::move(tensor.dims), tensor.data, tensor.bytes);
}

}  // namespace tessera
